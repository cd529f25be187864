package gateway

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/metadata"

	"github.com/headrace/headrace/gateway/shm"
	"github.com/headrace/headrace/storage/budget"
)

// shmHeader is the header of a DoGet whose messages may lie in shared memory: the key that was shown.
const shmHeader = "headrace-shm"

// offer answers the action headrace.shm.
func (s *Server) offer(ctx context.Context) ([]byte, error) {
	if s.Shm == nil {
		return nil, shm.ErrUnsupported
	}
	key, err := s.Shm.Offer(Tenant(ctx))
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Socket string `json:"socket"`
		Key    string `json:"key"`
	}{s.Shm.Address(), key})
}

// shared is the ring that a call's client shows the key of; nil: none. A client whose key is good no more is served over the wire.
func (s *Server) shared(ctx context.Context) *shm.Ring {
	keys := metadata.ValueFromIncomingContext(ctx, shmHeader)
	if s.Shm == nil || len(keys) != 1 {
		return nil
	}
	return s.Shm.Join(keys[0], Tenant(ctx))
}

// begin lets the ring be used until the returned function is called. What it takes is charged beside what the stream was
// promised, for a client may keep it as long as it likes.
func (s *sender) begin(ctx context.Context, promised *budget.Grant) (end func()) {
	own := promised.Split(0)
	s.entry.shared.Store(own)
	s.pulse.ring.Store(s.ring)
	s.ring.Begin(ctx, own)
	return own.Close
}

// share puts a part into the client's ring. False: it is to go over Flight.
func (s *sender) share(p part, meta []byte) (done bool, err error) {
	if s.ring == nil {
		return false, nil
	}
	s.pulse.sending.Store(true) // it is the client that is waited for
	defer s.pulse.sending.Store(false)
	defer s.pulse.sent.Add(1)
	return s.ring.Put(meta, p.body.Whole(), p.body.Write)
}
