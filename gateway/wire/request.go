package wire

import (
	"errors"
	"fmt"
	"slices"
)

// Request is everything a client can ask of a dataset. Fields stand in the order of the canonical form; the zero value
// is not a default request, [New] is.
type Request struct {
	Dataset         string
	Snapshot        string     // identity, 64 hex digits; "" is the newest
	Columns         [][]string // paths of fields; nil: all that are granted; empty: none
	Split           *Split
	ExpectSchema    string // fingerprint of the schema the client expects, 64 hex digits
	RowID           bool
	Shuffle         string // none, window, full
	WindowBlocks    int64
	Groups          int64
	Seed            uint64
	Epoch           int64
	NumEpochs       int64 // -1: without end
	BatchSize       int64 // rows; 0: batches as stored
	GlobalBatchSize int64
	WorldSize       int64
	Rank            *int64
	NumWorkers      int64
	WorkerID        *int64
	Tail            string // "", drop, pad, keep
	Start           *Cursor
	After           *Cursor
	Shards          *Shards
	Compression     string // "", lz4, zstd
	MaxMessageBytes int64
	Flight          string // random id that a gateway gave its FlightInfo, 32 hex digits; "" in a client's request
}

// Split keeps the rows of a block whose keyed place lies in [From, To) of 10,000.
type Split struct {
	Seed     uint64
	From, To int64
}

// Shards selects shards by key, or by number in the snapshot: [From, To) when Keys is nil.
type Shards struct {
	Keys     []string
	From, To int64
}

// New returns the request for a dataset with every default.
func New(dataset string) *Request {
	return &Request{Dataset: dataset, Shuffle: "none", Groups: 1, NumEpochs: 1, WorldSize: 1, NumWorkers: 1}
}

// MaxRequest is the most bytes a request may have; longer ones are refused unread.
const MaxRequest = 64 << 10

// Parse reads a request as strict JSON: every key known, there once and in its own case, every value of its type and
// in its range, nothing after it. It says nothing of what contradicts itself or is not served; [Request.Validate] does.
func Parse(b []byte) (*Request, error) {
	if len(b) > MaxRequest {
		return nil, fmt.Errorf("%w: %d bytes are more than the %d that a request may have", ErrRequest, len(b), MaxRequest)
	}
	return parse(b)
}

func parse(b []byte) (*Request, error) {
	d := &decoder{text: b}
	r, err := d.request()
	if err == nil {
		err = d.end()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return r, nil
}

// request reads a request, and nothing behind it.
func (d *decoder) request() (*Request, error) {
	r := New("")
	err := d.object(func(key string) error {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			return d.fail("%s", unknown(key))
		}
		if err := fields[i].read(d, r); err != nil {
			return within(key, err)
		}
		return nil
	})
	if err == nil && r.Dataset == "" {
		err = errors.New("dataset is missing")
	}
	return r, err
}

// Canonical returns the request's one JSON text: keys in order, defaults left out, no spaces.
func (r *Request) Canonical() []byte {
	b := []byte{'{'}
	for _, f := range fields {
		key := len(b)
		if key > 1 {
			b = append(b, ',')
		}
		b = append(appendString(b, f.name), ':')
		value := len(b)
		if b = f.write(b, r); len(b) == value {
			b = b[:key]
		}
	}
	return append(b, '}')
}
