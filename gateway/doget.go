package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/headrace/headrace/gateway/codec"
	"github.com/headrace/headrace/gateway/feed"
	"github.com/headrace/headrace/gateway/shm"
	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
)

// The largest message, when the request does not say: what a stock client of any language takes for batches as stored,
// and one whole training batch otherwise.
const (
	storedMessage = 4 << 20
	batchMessage  = 64 << 20
)

// DoGet streams what a ticket, or a request written by hand, means.
func (s *Server) DoGet(ticket *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	if s.draining.Load() {
		return errDraining
	}
	ctx := stream.Context()
	req, err := wire.ParseTicket(ticket.GetTicket())
	if err != nil {
		return err
	}
	p, err := s.plan(ctx, "DoGet", req)
	if err != nil {
		return err
	}
	if p.rank < 0 {
		return fmt.Errorf("%w: rank: name the one to stream, or take an endpoint's ticket", wire.ErrRequest)
	}
	who := principal(ctx)
	sent, end := s.Events.Stream(ctx, read("DoGet", who, req, p))
	entry := &running{flight: req.Flight, tenant: who.Tenant}
	err = s.run(ctx, &sender{Server: s, out: stream, planned: p, sent: sent, entry: entry})
	end(err)
	return err
}

// run sends the stream from a goroutine of its own and waits for it, or for a reason to end at once: a Send that waits
// for a client which does not read can only be ended by the end of the call.
func (s *Server) run(ctx context.Context, out *sender) error {
	ctx, cancel := context.WithCancelCause(ctx)
	out.entry.cancel = cancel
	done := s.flights.add(out.entry)
	stop := context.AfterFunc(s.running, func() { cancel(context.Cause(s.running)) })
	sent := make(chan error, 1)
	s.senders.Go(func() { s.endStalls(ctx, &out.pulse, cancel) })
	s.senders.Go(func() {
		defer done()
		defer stop()
		defer cancel(nil)
		defer func() {
			if r := recover(); r != nil {
				sent <- panicked(r)
			}
		}()
		err := out.send(ctx)
		if err != nil {
			s.collectSoon()
		}
		sent <- err
	})
	select {
	case err := <-sent:
		return cause(ctx, err)
	case <-ctx.Done():
		select {
		case err := <-sent: // both are ready: the stream's own end counts
			return cause(ctx, err)
		default:
			return cause(ctx, ctx.Err())
		}
	}
}

// cause replaces the bare "context canceled" by the reason it was.
func cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(err, context.Canceled) {
		if why := context.Cause(ctx); why != nil {
			return why
		}
	}
	return err
}

// sender is one DoGet on its way.
type sender struct {
	*Server
	out flight.FlightService_DoGetServer
	*planned
	sent    func(Sent)
	entry   *running
	encoder *codec.Encoder
	pulse   pulse
	ring    *shm.Ring // nil: the client has none
}

// send sends the schema at once, waits for memory, then sends batch after batch.
func (s *sender) send(ctx context.Context) error {
	if s.ring = s.shared(ctx); s.ring != nil {
		defer s.ring.End()
	}
	if err := s.sendMessage(codec.SchemaMessage(schema.Message(s.schema), nil)); err != nil {
		return err
	}
	batches, err := s.admit(ctx)
	if err != nil {
		return err
	}
	defer batches.Close()
	s.entry.grant.Store(batches.Grant())
	if s.ring != nil {
		defer s.begin(ctx, batches.Grant())()
	}
	s.encoder = codec.NewEncoder(compressions[s.request.Compression], s.Pool, batches.Grant())
	s.pulse.progress.Store(s.encoder.Progress())
	_, end := s.Events.Span(ctx, "first batch")
	for {
		var b *feed.Batch
		err := s.patiently(ctx, func() (err error) {
			b, err = batches.Next(ctx)
			return err
		})
		if errors.Is(err, io.EOF) {
			end(nil)
			return nil
		}
		if err == nil {
			err = s.sendBatch(ctx, b)
		} else {
			err = fmt.Errorf("dataset %q: %w", s.request.Dataset, err)
		}
		end(err)
		if err != nil {
			return err
		}
		end = func(error) {}
	}
}

// patiently does what takes memory that is the stream's own, once more if that fails while messages are on their way: their
// memory comes back as the client reads.
func (s *sender) patiently(ctx context.Context, do func() error) error {
	err := do()
	if !errors.Is(err, budget.ErrExhausted) || errors.Is(err, budget.ErrTooLarge) {
		return err
	}
	s.pulse.sending.Store(true) // it is the client that is waited for
	defer s.pulse.sending.Store(false)
	if ended := s.encoder.Progress().Wait(ctx); ended != nil {
		return ended
	}
	if s.ring != nil {
		if err := s.ring.Spare(); err != nil {
			return err
		}
	}
	return do()
}

var compressions = map[string]codec.Compression{"": codec.None, "lz4": codec.LZ4, "zstd": codec.Zstd}

// part is an encoded run of rows of a piece.
type part struct {
	body  *codec.Body
	piece feed.Piece
	from  int64
	rows  int64
}

// sendBatch sends a step: one message, or as many parts as the limit asks for. The cursor rides on the last.
func (s *sender) sendBatch(ctx context.Context, b *feed.Batch) error {
	defer b.Release()
	parts, err := s.encode(ctx, b)
	defer func() {
		for _, p := range parts {
			p.body.Release()
		}
	}()
	if err != nil {
		return err
	}
	sent := Sent{Rows: b.Rows, DataWait: b.Wait.Total}
	for i, p := range parts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		began := time.Now()
		if err := s.sendPart(p, s.batchMeta(b, parts, i).Marshal(), &sent); err != nil {
			return err
		}
		sent.SendWait += time.Since(began)
	}
	s.sent(sent)
	return nil
}

// sendPart sends a part through memory that the client shares, or over the connection.
func (s *sender) sendPart(p part, meta []byte, sent *Sent) error {
	sent.Bytes += int64(p.body.Size())
	shared, err := s.share(p, meta)
	if err != nil || shared {
		sent.Shared += int64(p.body.Size())
		return err
	}
	return s.sendMessage(p.body.Message(s.out.Context(), meta, p.piece.Lease.Share()))
}

func (s *sender) sendMessage(m *codec.Message) error {
	defer m.Release()
	s.pulse.sending.Store(true)
	defer s.pulse.sending.Store(false)
	defer s.pulse.sent.Add(1)
	return s.out.SendMsg(m)
}

// batchMeta is the metadata of part i.
func (s *sender) batchMeta(b *feed.Batch, parts []part, i int) wire.BatchMeta {
	m := wire.BatchMeta{Epoch: b.Epoch, Step: b.Step, Sum: b.Sum.String()}
	if i == 0 {
		m.WaitUS, m.StoreUS, m.DecodeUS = b.Wait.Total.Microseconds(), b.Wait.Store.Microseconds(), b.Wait.Decode.Microseconds()
	}
	if len(parts) > 1 {
		m.Part, m.Parts = i+1, len(parts)
		m.Sum = parts[i].piece.Sum(parts[i].from, parts[i].from+parts[i].rows).String()
	}
	if i+1 < len(parts) {
		return m
	}
	m.Cursor = wire.Cursor{Plan: s.hash[:cursorDigits], Epoch: b.After.Epoch, Rows: b.After.Rows}.String()
	if r := b.Receipt; r != nil {
		m.Receipt = &wire.Receipt{Rows: r.Rows, Steps: r.Steps, Padded: r.Padded, Dropped: r.Dropped, Sum: r.Sum.String()}
	}
	return m
}

// encode makes the messages of a step, each within the limit: sizes are measured after encoding, not guessed.
func (s *sender) encode(ctx context.Context, b *feed.Batch) (parts []part, err error) {
	limit := s.limit()
	for _, piece := range b.Pieces {
		parts, err = s.split(ctx, parts, part{piece: piece, rows: piece.Record.NumRows()}, limit)
		if err != nil {
			return parts, err
		}
	}
	return parts, nil
}

func (s *sender) limit() int {
	switch {
	case s.request.MaxMessageBytes > 0:
		return int(s.request.MaxMessageBytes)
	case s.batch > 0:
		return batchMessage
	default:
		return storedMessage
	}
}

// split appends the part, cut into equal runs of rows until each fits. A single row that is larger goes alone: clients
// that expect such rows raise their limit.
func (s *sender) split(ctx context.Context, parts []part, p part, limit int) ([]part, error) {
	record := p.piece.Record
	if p.from > 0 || p.rows < record.NumRows() {
		record = record.NewSlice(p.from, p.from+p.rows)
	}
	var body *codec.Body
	err := s.patiently(ctx, func() (err error) {
		body, err = s.encoder.Encode(record)
		return err
	})
	if err != nil {
		return parts, fmt.Errorf("dataset %q: %w", s.request.Dataset, err)
	}
	size := body.Size()
	if size <= limit || p.rows <= 1 {
		p.body = body
		return append(parts, p), nil
	}
	body.Release()
	n := min(p.rows, int64((size+limit-1)/limit))
	for i := range n {
		from, to := i*p.rows/n, (i+1)*p.rows/n
		parts, err = s.split(ctx, parts, part{piece: p.piece, from: p.from + from, rows: to - from}, limit)
		if err != nil {
			return parts, err
		}
	}
	return parts, nil
}
