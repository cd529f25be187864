package wire

import (
	"encoding/json"
	"fmt"
)

// maxWait keeps a batch's metadata short: a quarter of an hour in microseconds.
const maxWait = 999_999_999

// BatchMeta is the app_metadata of one Flight message with a record batch: always under 400 bytes.
type BatchMeta struct {
	Cursor   string   `json:"cursor,omitempty"` // the place after this batch; only on the last part of a split one
	Epoch    int64    `json:"epoch"`
	Step     int64    `json:"step"`                // counted from where the stream's origin is, over epoch borders
	Sum      string   `json:"sum"`                 // of this message's own rows
	WaitUS   int64    `json:"wait_us"`             // microseconds this batch waited for data; when it is split, on the first part
	StoreUS  int64    `json:"store_us,omitempty"`  // of them, for the store
	DecodeUS int64    `json:"decode_us,omitempty"` // of them, for the decoder
	Part     int      `json:"part,omitempty"`      // from 1, when split
	Parts    int      `json:"parts,omitempty"`     // when split
	Receipt  *Receipt `json:"receipt,omitempty"`
}

// Receipt closes an epoch of a stream, counted since its start or after.
type Receipt struct {
	Rows    int64  `json:"rows"`
	Steps   int64  `json:"steps"`
	Padded  int64  `json:"padded"`
	Dropped int64  `json:"dropped"`
	Sum     string `json:"sum"`
}

// EpochReceipt is what the receipts of all ranks for an epoch add up to, padded rows left out: an element of the answer
// of the action headrace.receipts.
type EpochReceipt struct {
	Epoch   int64  `json:"epoch"`
	Rows    int64  `json:"rows"`
	Dropped int64  `json:"dropped"`
	Sum     string `json:"sum"`
}

// InfoMeta is the app_metadata of a FlightInfo, and the answer of the action headrace.plan.
type InfoMeta struct {
	Plan         string   `json:"plan"` // the plan's hash, 64 hex digits
	Snapshot     string   `json:"snapshot"`
	Rows         int64    `json:"rows"` // -1: without end
	Steps        int64    `json:"steps"`
	WindowBlocks int64    `json:"window_blocks"`
	DesignEffect *float64 `json:"design_effect"` // null in stored order
	Dropped      int64    `json:"dropped"`
	Padded       int64    `json:"padded"`
	Schema       string   `json:"schema"` // fingerprint, for expect_schema
	Flight       string   `json:"flight"`
	Blocks       int64    `json:"blocks,omitempty"`      // with rows of the plan
	Bytes        int64    `json:"bytes,omitempty"`       // that an epoch decodes, all columns, by the files' own word
	Memory       int64    `json:"memory,omitempty"`      // bytes of one window of every group, shared by all streams of the plan
	GoodWindow   int64    `json:"good_window,omitempty"` // the window_blocks that bring design_effect to 2
}

// EndpointMeta is the app_metadata of one endpoint of a FlightInfo: a shard's, a group of shards', or a rank's.
type EndpointMeta struct {
	Shard    string `json:"shard,omitempty"`  // key, when the endpoint is one shard
	Shards   string `json:"shards,omitempty"` // "from:to", when it is several
	Rank     *int64 `json:"rank,omitempty"`
	Rows     int64  `json:"rows"`
	Steps    int64  `json:"steps"`
	Bytes    int64  `json:"bytes,omitempty"`    // of the shards as stored
	Segments int64  `json:"segments,omitempty"` // row groups or record batches
	Format   string `json:"format,omitempty"`
}

// ListedMeta is the app_metadata of a FlightInfo in a listing.
type ListedMeta struct {
	Rows     int64     `json:"rows"`
	Bytes    int64     `json:"bytes"`
	Shards   int64     `json:"shards"`
	Format   string    `json:"format,omitempty"`
	Snapshot string    `json:"snapshot,omitempty"`
	Skipped  int64     `json:"skipped,omitempty"` // objects left out by rule
	Corrupt  []Corrupt `json:"corrupt,omitempty"`
	Drift    []Drift   `json:"drift,omitempty"` // columns in which the shards' schemas differ
	Error    string    `json:"error,omitempty"` // why the dataset cannot be served at all
}

// Corrupt names a shard that cannot be read, and why.
type Corrupt struct {
	Shard string `json:"shard"`
	Error string `json:"error"`
}

// Drift tells the types that a column has in a dataset's shards, the most frequent first.
type Drift struct {
	Column string      `json:"column"`
	Types  []DriftType `json:"types"`
}

// DriftType is one of them.
type DriftType struct {
	Type   string `json:"type,omitempty"` // without: the column is missing
	Shards int64  `json:"shards"`
	First  string `json:"first"` // key of the first of the shards
}

// Marshal returns the JSON.
func (m BatchMeta) Marshal() []byte {
	m.WaitUS, m.StoreUS, m.DecodeUS = min(m.WaitUS, maxWait), min(m.StoreUS, maxWait), min(m.DecodeUS, maxWait)
	return marshal(m)
}

// Marshal returns the JSON.
func (m InfoMeta) Marshal() []byte { return marshal(m) }

// Marshal returns the JSON.
func (m EndpointMeta) Marshal() []byte { return marshal(m) }

// Marshal returns the JSON.
func (m ListedMeta) Marshal() []byte { return marshal(m) }

// ParseMeta reads any of the metadata, for clients: keys a later gateway added are passed over.
func ParseMeta[M BatchMeta | InfoMeta | EndpointMeta | ListedMeta](b []byte) (M, error) {
	var m M
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: metadata of another kind: %w", ErrRequest, err)
	}
	return m, nil
}

// marshal cannot fail: the metadata hold numbers, strings and finite floats.
func marshal(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}
