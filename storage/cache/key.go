package cache

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Key names one block of one version of an object.
type Key struct {
	// Object is the identity and the pin of the object: the identity alone may be
	// that of two files with different rows.
	Object  string
	Segment int
	From    int64 // the first row within the segment
}

// Columns is a set of columns in an order, as frames hold them.
type Columns struct {
	schema *arrow.Schema
	names  []string // of each field: its name and type
	at     map[string]int
	id     string // all of that in one
}

// NewColumns makes the column set of frames with a schema. Two fields of one name
// and type are the same column of an object.
func NewColumns(s *arrow.Schema) *Columns {
	names := make([]string, 0, s.NumFields())
	for _, f := range s.Fields() {
		name := f.Name + "\x00" + f.Type.String()
		if f.Nullable {
			name += "?"
		}
		names = append(names, name)
	}
	c := NamedColumns(names)
	c.schema = s
	return c
}

// NamedColumns makes the column set that has such Names, without a schema.
func NamedColumns(names []string) *Columns {
	c := &Columns{names: names, at: make(map[string]int, len(names)), id: strings.Join(names, "\x01")}
	for i, name := range names {
		c.at[name] = i
	}
	return c
}

// Names returns what tells each column from all others of its object: its name and type.
func (c *Columns) Names() []string { return c.names }

// Schema returns the schema of frames with the columns.
func (c *Columns) Schema() *arrow.Schema { return c.schema }

// Within returns where each of the columns is among others, false if one is not.
func (c *Columns) Within(o *Columns) ([]int, bool) {
	if len(c.names) > len(o.names) {
		return nil, false
	}
	places := make([]int, len(c.names))
	for i, name := range c.names {
		at, ok := o.at[name]
		if !ok {
			return nil, false
		}
		places[i] = at
	}
	return places, true
}

// same tells whether frames with the one set are as good as with the other.
func (c *Columns) same(o *Columns) bool { return c == o || c.id == o.id }
