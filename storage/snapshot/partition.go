package snapshot

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/headrace/headrace/schema"
)

// Partition is what a folder named k=v says of all rows in it.
type Partition struct {
	Name, Value string
	Null        bool
}

// nullValue is how writers spell a null in a folder's name.
const nullValue = "__HIVE_DEFAULT_PARTITION__"

// Partitions returns what the folders of a key say, outermost first. Writers
// escape what cannot stand in a name as %XX: that is decoded once, names and
// values alike; a % without two hex digits stands for itself.
func Partitions(key string) (out []Partition, err error) {
	for part := range strings.SplitSeq(path.Dir(key), "/") {
		name, value, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			continue
		}
		p := Partition{Name: unescape(name), Value: unescape(value), Null: value == nullValue}
		if !utf8.ValidString(p.Name) || !utf8.ValidString(p.Value) {
			return nil, fmt.Errorf("%w: shard %q: the folder %q is not UTF-8 once decoded", ErrUnsupported, key, part)
		}
		if slices.ContainsFunc(out, func(o Partition) bool { return o.Name == p.Name }) {
			return nil, fmt.Errorf("%w: shard %q: column %q is in the names of two of its folders", schema.ErrDuplicate, key, p.Name)
		}
		out = append(out, p)
	}
	return out, nil
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// partitioner finds out which columns the folders of a dataset make.
type partitioner struct {
	rule   schema.Rule
	fields []arrow.Field // in order of appearance, type nil until it is known
	kinds  []valueKind
	seen   []string // by column: the first shard that has it
	shards int
	counts []int // by column: the shards that have it
}

// valueKind is a set of types that all values seen so far can have.
type valueKind int

const (
	anInteger valueKind = 1 << iota
	aDate
)

func (p *partitioner) add(key string) error {
	parts, err := Partitions(key)
	if err != nil {
		return err
	}
	p.shards++
	for _, part := range parts {
		i := p.index(part.Name)
		if i < 0 {
			i = len(p.fields)
			p.fields = append(p.fields, arrow.Field{Name: part.Name, Nullable: true})
			p.kinds, p.seen, p.counts = append(p.kinds, anInteger|aDate), append(p.seen, key), append(p.counts, 0)
		}
		p.counts[i]++
		if !part.Null {
			p.kinds[i] &= kindOf(part.Value)
		}
	}
	return nil
}

func (p *partitioner) index(name string) int {
	return slices.IndexFunc(p.fields, func(f arrow.Field) bool { return f.Name == name })
}

// kindOf returns the types that lose nothing of a value: integers are those
// that a number would be written as, so 007 is a text.
func kindOf(value string) (k valueKind) {
	if v, err := strconv.ParseInt(value, 10, 64); err == nil && strconv.FormatInt(v, 10) == value {
		k |= anInteger
	}
	if d, err := time.Parse(time.DateOnly, value); err == nil && d.Format(time.DateOnly) == value {
		k |= aDate
	}
	return k
}

// columns returns the fields that the folders make. missing names a shard
// without a folder that another one has, which only some rules allow.
func (p *partitioner) columns(missing func(name string) string) ([]arrow.Field, error) {
	for i := range p.fields {
		f := &p.fields[i]
		if p.counts[i] < p.shards && !p.rule.Widen && p.rule.Given == nil {
			return nil, fmt.Errorf("%w: shard %q lies in no folder %s=, which shard %q does: schema: widen in the config takes that for null, exclude leaves files out",
				schema.ErrMismatch, missing(f.Name), f.Name, p.seen[i])
		}
		switch k := p.kinds[i]; {
		case k == anInteger|aDate: // nothing but nulls
			f.Type = arrow.BinaryTypes.String
		case k&anInteger != 0:
			f.Type = arrow.PrimitiveTypes.Int64
		case k&aDate != 0:
			f.Type = arrow.FixedWidthTypes.Date32
		default:
			f.Type = arrow.BinaryTypes.String
		}
	}
	return p.fields, nil
}

// Constant returns the value, one row, that a shard's folders say its rows have
// in column f of the snapshot; nil if they say nothing.
func (s *Snapshot) Constant(shard int, f arrow.Field) (arrow.Array, error) {
	if !slices.Contains(s.partitions, f.Name) {
		return nil, nil
	}
	parts, err := Partitions(s.Shards[shard].Key)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if p.Name == f.Name && !p.Null {
			return p.as(f)
		}
	}
	return nil, nil
}

// as returns the value as one of the type that f has.
func (p Partition) as(f arrow.Field) (arr arrow.Array, err error) {
	b := array.NewBuilder(memory.DefaultAllocator, f.Type)
	defer b.Release()
	_, nested := f.Type.(arrow.NestedType)
	if text, ok := b.(array.StringLikeBuilder); ok {
		text.Append(p.Value) // whatever it says: some texts mean null to the parser
	} else if err := b.AppendValueFromString(p.Value); err != nil || b.NullN() > 0 || nested {
		return nil, fmt.Errorf("%w: column %q: the folder's value %q is no %s", schema.ErrMismatch, f.Name, p.Value, f.Type)
	}
	return b.NewArray(), nil
}
