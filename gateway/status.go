package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/gateway/codec"
	"github.com/headrace/headrace/gateway/shm"
	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// Errors that are born at this door.
var (
	errDraining  = errors.New("this gateway is shutting down: connect again and go on with after = the last cursor")
	errCancelled = errors.New("cancelled by CancelFlightInfo")
	errStalled   = errors.New("the client took nothing for too long while others waited for memory: read on with after = the last cursor")
	errPlan      = errors.New("the cursor belongs to another plan")
	errNoFlight  = errors.New("no running stream of that flight")
)

// statuses is the one table from errors to codes. The first match counts.
var statuses = []struct {
	err  error
	code codes.Code
}{
	{storage.ErrNoDataset, codes.NotFound},
	{schema.ErrUnknownColumn, codes.NotFound},
	{errNoFlight, codes.NotFound},
	{wire.ErrRequest, codes.InvalidArgument},
	{schema.ErrDuplicate, codes.InvalidArgument},
	{schema.ErrMismatch, codes.InvalidArgument},
	{sampler.ErrShort, codes.InvalidArgument},
	{sampler.ErrBorder, codes.InvalidArgument},
	{sampler.ErrPlace, codes.InvalidArgument},
	{sampler.ErrPlan, codes.InvalidArgument},
	{sampler.ErrLimit, codes.InvalidArgument},
	{budget.ErrTooLarge, codes.InvalidArgument},
	{storage.ErrSnapshotGone, codes.FailedPrecondition},
	{bucket.ErrChanged, codes.FailedPrecondition},
	{bucket.ErrNotFound, codes.FailedPrecondition},
	{snapshot.ErrEmpty, codes.FailedPrecondition},
	{errPlan, codes.FailedPrecondition},
	// Never RESOURCE_EXHAUSTED for load: pyarrow shows that as a bad argument, and clients would not try again.
	{budget.ErrTimeout, codes.Unavailable},
	{budget.ErrExhausted, codes.Unavailable},
	{errDraining, codes.Unavailable},
	{errStalled, codes.Unavailable},
	{shm.ErrBusy, codes.Unavailable},
	{shm.ErrGone, codes.Unavailable},
	{shm.ErrUnsupported, codes.Unimplemented},
	{bucket.ErrUnreachable, codes.Unavailable},
	{snapshot.ErrUnsupported, codes.Unimplemented},
	{bucket.ErrUnversioned, codes.Unimplemented},
	{frame.ErrUnsupported, codes.Unimplemented},
	{frame.ErrOverflow, codes.Unimplemented},
	{codec.ErrUnsupported, codes.Unimplemented},
	{snapshot.ErrCorrupt, codes.DataLoss},
	{frame.ErrCorrupt, codes.DataLoss},
	{codec.ErrCorrupt, codes.DataLoss},
	{bucket.ErrTruncated, codes.DataLoss},
	{bucket.ErrNotRegular, codes.DataLoss},
	{bucket.ErrOutside, codes.DataLoss},
	{errCancelled, codes.Canceled},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// status turns an error into what the client sees. What the table does not know is our bug: the text says nothing but
// an id, the log has the rest.
func (s *Server) status(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, known := range statuses {
		if errors.Is(err, known.err) {
			return status.Error(known.code, clip(err.Error()))
		}
	}
	id := randomHex(8)
	s.Events.Fault(ctx, id, err)
	return status.Errorf(codes.Internal, "internal error %s: the gateway's log has the details under this id", id)
}

// maxText keeps a status under the size of headers that clients accept without complaint.
const maxText = 1000

// clip makes a text fit for a trailer: short, valid UTF-8, one line.
func clip(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\n", " "), "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// randomHex returns n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
