// Package snapshot holds datasets, shards, segments and blocks as facts; identity and pins.
package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
)

var (
	// ErrCorrupt means that a file is not what it claims to be.
	ErrCorrupt = errors.New("corrupt data")
	// ErrUnsupported means that a file is well formed but uses something that
	// is not served.
	ErrUnsupported = errors.New("unsupported data")
	// ErrEmpty means that there is nothing to make a snapshot of.
	ErrEmpty = errors.New("no data files")
)

// Format names the container of a shard.
type Format string

// The formats of shards.
const (
	Parquet Format = "parquet"
	Arrow   Format = "arrow"        // IPC file, read from its footer
	Stream  Format = "arrow-stream" // IPC stream, read from its start
)

// Shard is one object that holds rows. It does not change once it is part of a
// snapshot; snapshots of one dataset share it.
type Shard struct {
	Key      string
	Size     int64 // bytes of the object
	Format   Format
	Schema   *arrow.Schema // as stored; the snapshot's is plain
	Segments []Segment
	Meta     [32]byte // SHA-256 of the footer or metadata bytes
	Facts    any      // the format's own, small
	Err      error    // why the shard cannot be read: it then counts no rows
	Pin      string   // which bytes were described; not part of the identity
}

// Rows returns the rows of the shard, 0 if it cannot be read.
func (s *Shard) Rows() int64 {
	var n int64
	for _, seg := range s.segments() {
		n += seg.Rows
	}
	return n
}

func (s *Shard) segments() []Segment {
	if s.Err != nil {
		return nil
	}
	return s.Segments
}

// Snapshot is the exact shards of a dataset at one time; immutable.
type Snapshot struct {
	Dataset string
	ID      string        // identity: 64 hex digits
	Shards  []*Shard      // sorted bytewise by key
	Schema  *arrow.Schema // plain, joined over all shards that can be read

	rules      Rules
	partitions []string // columns that folders make

	all   *Blocks
	first []int64 // rows before each shard
	bytes int64
}

// Rules say how shards become one dataset. They are no part of its identity:
// they decide which columns it has, never which rows.
type Rules struct {
	Schema schema.Rule
	// Hive makes columns of folders named k=v: of type int64 or date32 if no
	// value loses anything by that, else string, unless the schema is given.
	Hive bool
}

// New makes a snapshot of shards, whose keys differ. Rows are numbered by key,
// then as stored. Shards with an Err stay in it without rows, and their
// schemas bind nobody; at least one shard must be readable. Errors wrap
// ErrEmpty, ErrCorrupt, schema.ErrDuplicate or schema.ErrMismatch and name the
// shard.
func New(dataset string, shards []*Shard, r Rules) (*Snapshot, error) {
	s := &Snapshot{Dataset: dataset, Shards: slices.Clone(shards), rules: r}
	slices.SortFunc(s.Shards, func(a, b *Shard) int { return cmp.Compare(a.Key, b.Key) })
	if len(shards) == 0 {
		return nil, ErrEmpty
	}
	if err := s.count(); err != nil {
		return nil, err
	}
	if err := s.join(); err != nil {
		return nil, err
	}
	s.ID = identity(s.Shards)
	s.all = s.newBlocks(nil)
	return s, nil
}

// count adds up bytes and refuses sizes that no sum can hold.
func (s *Snapshot) count() error {
	var rows int64
	for _, sh := range s.Shards {
		s.first = append(s.first, rows)
		for i, seg := range sh.segments() {
			if seg.Rows < 0 || seg.Bytes < 0 || rows > math.MaxInt64-seg.Rows || s.bytes > math.MaxInt64-seg.Bytes {
				return fmt.Errorf("%w: shard %q: segment %d claims %d rows in %d bytes", ErrCorrupt, sh.Key, i, seg.Rows, seg.Bytes)
			}
			rows += seg.Rows
			s.bytes += seg.Bytes
		}
	}
	return nil
}

func (s *Snapshot) join() error {
	folders, err := s.partition()
	if err != nil {
		return err
	}
	contract := schema.NewContract(s.rules.Schema.Without(s.partitions))
	plain := plainer{}
	for _, sh := range s.Shards {
		if sh.Err != nil {
			continue
		}
		p, known := plain[sh.Schema]
		if !known {
			if p, err = plain.of(sh); err == nil {
				err = s.apart(sh.Key, p)
			}
			if err != nil {
				return err
			}
		}
		if err := contract.Add(sh.Key, p); err != nil {
			return err
		}
	}
	if len(plain) == 0 {
		return s.Corrupt(nil)
	}
	s.Schema = contract.Schema()
	return s.extend(folders)
}

// partition returns the columns that folders make.
func (s *Snapshot) partition() ([]arrow.Field, error) {
	if !s.rules.Hive {
		return nil, nil
	}
	p := partitioner{rule: s.rules.Schema}
	for _, sh := range s.Shards {
		if sh.Err == nil {
			if err := p.add(sh.Key); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range p.fields {
		s.partitions = append(s.partitions, f.Name)
	}
	return p.columns(s.outside)
}

// outside returns the first readable shard that lies in no folder of that name.
func (s *Snapshot) outside(name string) string {
	for _, sh := range s.Shards {
		parts, err := Partitions(sh.Key)
		if sh.Err == nil && err == nil && !slices.ContainsFunc(parts, func(p Partition) bool { return p.Name == name }) {
			return sh.Key
		}
	}
	return ""
}

// apart refuses files that have a column which their folders make too: nobody can tell which of the two is meant.
func (s *Snapshot) apart(key string, file *arrow.Schema) error {
	for _, name := range s.partitions {
		if file.HasField(name) {
			return fmt.Errorf("%w: column %q is both in shard %q and in the names of folders: without partitioning in the config the files' own is served",
				schema.ErrDuplicate, name, key)
		}
	}
	return nil
}

// extend adds the columns that folders make to those of the files. A given
// schema has them already, and may ask for other types.
func (s *Snapshot) extend(folders []arrow.Field) error {
	given := s.rules.Schema.Given
	if given == nil {
		md := s.Schema.Metadata()
		s.Schema = arrow.NewSchema(append(s.Schema.Fields(), folders...), &md)
		return nil
	}
	s.Schema = given
	for _, f := range given.Fields() {
		if !slices.Contains(s.partitions, f.Name) {
			continue
		}
		for i, sh := range s.Shards {
			if sh.Err != nil {
				continue
			}
			v, err := s.Constant(i, f)
			if err == nil && v == nil && !f.Nullable {
				err = fmt.Errorf("%w: column %q is not null in the given schema, and its folder says nothing", schema.ErrMismatch, f.Name)
			}
			if err != nil {
				return fmt.Errorf("shard %q: %w", sh.Key, err)
			}
		}
	}
	return nil
}

// plainer remembers the plain form of schemas, which most shards share.
type plainer map[*arrow.Schema]*arrow.Schema

func (p plainer) of(sh *Shard) (*arrow.Schema, error) {
	if known := p[sh.Schema]; known != nil {
		return known, nil
	}
	if err := schema.Check(sh.Schema); err != nil {
		return nil, fmt.Errorf("shard %q: %w", sh.Key, err)
	}
	p[sh.Schema] = schema.Plain(sh.Schema)
	return p[sh.Schema], nil
}

// Drifts tells the columns in which the schemas of shards differ, at most
// limit of them, whether or not the differences make a snapshot impossible.
func Drifts(shards []*Shard, limit int) []schema.Drift {
	var survey schema.Survey
	plain := plainer{}
	for _, sh := range shards {
		if sh.Err != nil {
			continue
		}
		if p, err := plain.of(sh); err == nil {
			survey.Add(sh.Key, p)
		}
	}
	return survey.Drifts(limit)
}

// Fitter says how shards become columns of one projection. It is used by one
// goroutine.
type Fitter struct {
	snap *Snapshot
	p    *schema.Projection
	fits map[*arrow.Schema]*schema.Fit // most shards share a schema
}

// Fitter returns one for p, a projection of the snapshot's schema.
func (s *Snapshot) Fitter(p *schema.Projection) *Fitter {
	return &Fitter{snap: s, p: p, fits: map[*arrow.Schema]*schema.Fit{}}
}

// Of returns how the shard with the given number fits.
func (f *Fitter) Of(shard int) *schema.Fit {
	if r := f.snap.rules; !r.Schema.Widen && r.Schema.Given == nil && len(f.snap.partitions) == 0 {
		return &schema.Fit{Stored: f.p, Alike: true}
	}
	stored := f.snap.Shards[shard].Schema
	fit := f.fits[stored]
	if fit == nil {
		fit = schema.NewFit(f.p, schema.Plain(stored))
		f.fits[stored] = fit
	}
	return fit
}

// Rows returns the rows of all shards.
func (s *Snapshot) Rows() int64 { return s.all.Rows() }

// FirstRow returns the number of the first row of the shard with the given
// number.
func (s *Snapshot) FirstRow(shard int) int64 { return s.first[shard] }

// Bytes returns the decoded bytes of all shards, by their files' own word.
func (s *Snapshot) Bytes() int64 { return s.bytes }

// Number returns the place of the shard with the given key in Shards.
func (s *Snapshot) Number(key string) (int, bool) {
	return slices.BinarySearchFunc(s.Shards, key, func(sh *Shard, key string) int { return cmp.Compare(sh.Key, key) })
}

// Corrupt returns why the shards with the given numbers (nil: all) cannot be
// served: the error of the first one that cannot be read, naming it, which
// wraps ErrUnsupported if it is that, else ErrCorrupt.
func (s *Snapshot) Corrupt(shards []int) error {
	for _, n := range s.selected(shards) {
		sh := s.Shards[n]
		switch {
		case sh.Err == nil:
		case errors.Is(sh.Err, ErrCorrupt), errors.Is(sh.Err, ErrUnsupported):
			return fmt.Errorf("shard %q cannot be read: %w", sh.Key, sh.Err)
		default:
			return fmt.Errorf("%w: shard %q cannot be read: %w", ErrCorrupt, sh.Key, sh.Err)
		}
	}
	return nil
}

func (s *Snapshot) selected(shards []int) []int {
	if shards != nil {
		return shards
	}
	all := make([]int, len(s.Shards))
	for i := range all {
		all[i] = i
	}
	return all
}
