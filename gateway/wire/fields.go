package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of numbers, so that no arithmetic on a request can overflow.
const (
	maxWorld   = 65_536    // ranks, workers and groups
	maxCount   = 1<<31 - 1 // rows of a batch, blocks of a window, shards
	minMessage = 1 << 10   // bytes; smaller messages would be mostly header
	maxMessage = 64 << 20  // bytes
	maxColumns = 4_096
	maxDepth   = 64 // elements of a column's path
)

// field is one key of a request: how its value is read, and how it is written when it is not the default.
type field struct {
	name  string
	read  func(d *decoder, r *Request) error
	write func(b []byte, r *Request) []byte // returns b unchanged for the default
}

// fields holds every key in canonical order. Tickets hold them in this order for ever: new ones go to the end.
var fields = []field{
	text("dataset", func(r *Request) *string { return &r.Dataset }, "", checkDataset),
	text("snapshot", func(r *Request) *string { return &r.Snapshot }, "", checkSnapshot),
	{"columns", readColumns, writeColumns},
	{"split", readSplit, writeSplit},
	text("expect_schema", func(r *Request) *string { return &r.ExpectSchema }, "", checkHash),
	{"row_id", readRowID, writeRowID},
	text("shuffle", func(r *Request) *string { return &r.Shuffle }, "none", oneOf("none", "window", "full")),
	number("window_blocks", func(r *Request) *int64 { return &r.WindowBlocks }, 0, 0, maxCount),
	number("groups", func(r *Request) *int64 { return &r.Groups }, 1, 1, maxWorld),
	{"seed", readSeed, writeSeed},
	number("epoch", func(r *Request) *int64 { return &r.Epoch }, 0, 0, MaxEpoch-1),
	number("num_epochs", func(r *Request) *int64 { return &r.NumEpochs }, 1, -1, MaxEpoch),
	number("batch_size", func(r *Request) *int64 { return &r.BatchSize }, 0, 0, maxCount),
	number("global_batch_size", func(r *Request) *int64 { return &r.GlobalBatchSize }, 0, 0, maxCount*maxWorld),
	number("world_size", func(r *Request) *int64 { return &r.WorldSize }, 1, 1, maxWorld),
	optional("rank", func(r *Request) **int64 { return &r.Rank }),
	number("num_workers", func(r *Request) *int64 { return &r.NumWorkers }, 1, 1, maxWorld),
	optional("worker_id", func(r *Request) **int64 { return &r.WorkerID }),
	text("tail", func(r *Request) *string { return &r.Tail }, "", oneOf("", "drop", "pad", "keep")),
	cursor("start", func(r *Request) **Cursor { return &r.Start }),
	cursor("after", func(r *Request) **Cursor { return &r.After }),
	{"shards", readShards, writeShards},
	text("compression", func(r *Request) *string { return &r.Compression }, "", oneOf("", "lz4", "zstd")),
	number("max_message_bytes", func(r *Request) *int64 { return &r.MaxMessageBytes }, 0, 0, maxMessage),
	text("flight", func(r *Request) *string { return &r.Flight }, "", checkFlight),
}

// text is a field that holds a string; check says what is wrong with one.
func text(name string, at func(*Request) *string, normal string, check func(string) string) field {
	read := func(d *decoder, r *Request) error {
		s, err := d.str()
		if err != nil {
			return err
		}
		if wrong := check(s); wrong != "" && s != normal {
			return d.fail("%s", wrong)
		}
		*at(r) = s
		return nil
	}
	write := func(b []byte, r *Request) []byte {
		if s := *at(r); s != normal {
			return appendString(b, s)
		}
		return b
	}
	return field{name, read, write}
}

// number is a field that holds an integer in [low, high].
func number(name string, at func(*Request) *int64, normal, low, high int64) field {
	read := func(d *decoder, r *Request) (err error) {
		*at(r), err = d.integer(low, high)
		return err
	}
	write := func(b []byte, r *Request) []byte {
		if n := *at(r); n != normal {
			return strconv.AppendInt(b, n, 10)
		}
		return b
	}
	return field{name, read, write}
}

// optional is a field that holds a rank's or worker's number, or null.
func optional(name string, at func(*Request) **int64) field {
	read := func(d *decoder, r *Request) error {
		if d.null() {
			return nil
		}
		n, err := d.integer(0, maxWorld-1)
		*at(r) = &n
		return err
	}
	write := func(b []byte, r *Request) []byte {
		if n := *at(r); n != nil {
			return strconv.AppendInt(b, *n, 10)
		}
		return b
	}
	return field{name, read, write}
}

// cursor is a field that holds a place in the plan, or "".
func cursor(name string, at func(*Request) **Cursor) field {
	read := func(d *decoder, r *Request) error {
		s, err := d.str()
		if err != nil || s == "" {
			return err
		}
		c, err := ParseCursor(s)
		if err != nil {
			return d.fail("%s", cursorForm)
		}
		*at(r) = &c
		return nil
	}
	write := func(b []byte, r *Request) []byte {
		if c := *at(r); c != nil {
			return appendString(b, c.String())
		}
		return b
	}
	return field{name, read, write}
}

func oneOf(words ...string) func(string) string {
	return func(s string) string {
		if slices.Contains(words, s) {
			return ""
		}
		return fmt.Sprintf("must be one of %q, not %s", words, clip(s))
	}
}

func checkDataset(s string) string {
	if _, err := DatasetName([]string{s}); err != nil {
		return badName
	}
	return ""
}

func checkHash(s string) string {
	if isHex(s, 64) {
		return ""
	}
	return "must be 64 lower-case hex digits, as a FlightInfo's metadata gives them"
}

// checkSnapshot takes an identity or a tag; a tag cannot look like an identity.
func checkSnapshot(s string) string {
	if isHex(s, 64) || IsTag(s) {
		return ""
	}
	return "must be 64 lower-case hex digits, as a FlightInfo's metadata gives them, or a tag"
}

// maxTag is the most characters of a tag.
const maxTag = 40

// IsTag tells whether a snapshot may be called so: lower-case letters, digits, and dots, dashes and underscores between them.
func IsTag(s string) bool {
	plain := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	if s == "" || len(s) > maxTag || !plain(s[0]) || !plain(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !plain(s[i]) && s[i] != '.' && s[i] != '-' && s[i] != '_' {
			return false
		}
	}
	return true
}

func checkFlight(s string) string {
	if isHex(s, 32) {
		return ""
	}
	return "must be 32 lower-case hex digits, as a FlightInfo's metadata gives them; leave it out to get one"
}

func readRowID(d *decoder, r *Request) (err error) {
	r.RowID, err = d.boolean()
	return err
}

func writeRowID(b []byte, r *Request) []byte {
	if r.RowID {
		return append(b, "true"...)
	}
	return b
}

func readSeed(d *decoder, r *Request) (err error) {
	r.Seed, err = d.natural()
	return err
}

func writeSeed(b []byte, r *Request) []byte {
	if r.Seed != 0 {
		return strconv.AppendUint(b, r.Seed, 10)
	}
	return b
}

func readColumns(d *decoder, r *Request) error {
	if d.null() {
		return nil
	}
	r.Columns = [][]string{}
	return d.array("null or an array of names", func() error {
		if len(r.Columns) == maxColumns {
			return d.fail("more than %d columns", maxColumns)
		}
		path, err := readPath(d)
		r.Columns = append(r.Columns, path)
		return err
	})
}

// readPath reads a column's name, or the names that lead to a nested field.
func readPath(d *decoder) ([]string, error) {
	if d.peek() == '"' {
		name, err := readName(d)
		return []string{name}, err
	}
	var path []string
	err := d.array("a name or an array of names", func() error {
		if len(path) == maxDepth {
			return d.fail("a path of more than %d names", maxDepth)
		}
		name, err := readName(d)
		path = append(path, name)
		return err
	})
	if err == nil && len(path) == 0 {
		err = d.fail("a path needs a name")
	}
	return path, err
}

func readName(d *decoder) (string, error) {
	name, err := d.str()
	if err == nil && name == "" {
		err = d.fail("a name may not be empty")
	}
	return name, err
}

func writeColumns(b []byte, r *Request) []byte {
	if r.Columns == nil {
		return b
	}
	b = append(b, '[')
	for i, path := range r.Columns {
		if i > 0 {
			b = append(b, ',')
		}
		if len(path) == 1 {
			b = appendString(b, path[0])
		} else {
			b = appendStrings(b, path)
		}
	}
	return append(b, ']')
}

func appendStrings(b []byte, all []string) []byte {
	b = append(b, '[')
	for i, s := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

func readSplit(d *decoder, r *Request) error {
	if d.null() {
		return nil
	}
	r.Split = &Split{}
	members := 0
	err := d.object(func(key string) (err error) {
		members++
		switch key {
		case "seed":
			r.Split.Seed, err = d.natural()
		case "from":
			r.Split.From, err = d.integer(0, 10_000)
		case "to":
			r.Split.To, err = d.integer(0, 10_000)
		default:
			err = d.fail("unknown field %s: a split has seed, from and to", clip(key))
		}
		return err
	})
	if err == nil && members < 3 {
		err = d.fail("a split needs seed, from and to")
	}
	return err
}

func writeSplit(b []byte, r *Request) []byte {
	if r.Split == nil {
		return b
	}
	return fmt.Appendf(b, `{"seed":%d,"from":%d,"to":%d}`, r.Split.Seed, r.Split.From, r.Split.To)
}

const shardsForm = `null, an array of keys, or "from:to" with numbers in the snapshot`

func readShards(d *decoder, r *Request) error {
	switch d.peek() {
	case 'n':
		if d.null() {
			return nil
		}
	case '"':
		return readShardRange(d, r)
	}
	keys := []string{}
	seen := make(map[string]bool)
	err := d.array(shardsForm, func() error {
		key, err := readName(d)
		if err == nil && seen[key] {
			err = d.fail("shard %s is there twice", clip(key))
		}
		seen[key] = true
		keys = append(keys, key)
		return err
	})
	if err == nil && len(keys) == 0 {
		err = d.fail("an empty list selects nothing; null selects all shards")
	}
	r.Shards = &Shards{Keys: keys}
	return err
}

func readShardRange(d *decoder, r *Request) error {
	s, err := d.str()
	if err != nil {
		return err
	}
	left, right, _ := strings.Cut(s, ":")
	from, err1 := strconv.ParseInt(left, 10, 64)
	to, err2 := strconv.ParseInt(right, 10, 64)
	r.Shards = &Shards{From: from, To: to}
	if err1 != nil || err2 != nil || from < 0 || from > to || to > maxCount || r.Shards.span() != s {
		return d.fail("must be %s, not %s", shardsForm, clip(s))
	}
	return nil
}

// span writes a range of shards as "from:to".
func (s *Shards) span() string { return fmt.Sprintf("%d:%d", s.From, s.To) }

func writeShards(b []byte, r *Request) []byte {
	switch {
	case r.Shards == nil:
		return b
	case r.Shards.Keys == nil:
		return appendString(b, r.Shards.span())
	}
	return appendStrings(b, r.Shards.Keys)
}
