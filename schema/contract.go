package schema

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Contract folds the schemas of a dataset's shards into one, strictly: the
// same column names and types everywhere. The order of columns is free (the
// first shard's counts), as are metadata (the first shard's count),
// nullability at any depth (nullable anywhere is nullable) and the names
// inside lists and maps, which mean nothing. The children of a struct belong
// to its type, order included. Two different extension types do not agree,
// even over the same storage.
type Contract struct {
	first    string // the shard whose order and metadata count
	fields   []arrow.Field
	metadata arrow.Metadata
	index    map[string]int
	schema   *arrow.Schema
}

// NewContract returns a contract that binds nobody yet.
func NewContract() *Contract { return &Contract{} }

// Add binds one more shard to the contract; s is already Plain. ErrMismatch
// names the shard, the field and both types; the contract then stays as it was.
func (c *Contract) Add(shard string, s *arrow.Schema) error {
	if c.index == nil {
		c.begin(shard, s)
		return nil
	}
	joined := slices.Clone(c.fields)
	for _, f := range s.Fields() {
		i, ok := c.index[f.Name]
		if !ok {
			return fmt.Errorf("%w: shard %q has column %q (%s), which shard %q lacks", ErrMismatch, shard, f.Name, f.Type, c.first)
		}
		j, why := join([]string{f.Name}, c.fields[i], f)
		if why != nil {
			return fmt.Errorf("%w: column %s is %s in shard %q but %s in shard %q",
				ErrMismatch, quotePath(why.path), why.other, shard, why.one, c.first)
		}
		joined[i] = j
	}
	for _, f := range c.fields {
		if !s.HasField(f.Name) {
			return fmt.Errorf("%w: shard %q lacks column %q (%s), which shard %q has", ErrMismatch, shard, f.Name, f.Type, c.first)
		}
	}
	c.fields, c.schema = joined, nil
	return nil
}

func (c *Contract) begin(shard string, s *arrow.Schema) {
	c.first, c.fields, c.metadata = shard, s.Fields(), s.Metadata()
	c.index = make(map[string]int, len(c.fields))
	for i, f := range c.fields {
		c.index[f.Name] = i
	}
}

// Schema returns the joined schema; nil before the first Add.
func (c *Contract) Schema() *arrow.Schema {
	if c.schema == nil && c.index != nil {
		c.schema = arrow.NewSchema(c.fields, &c.metadata)
	}
	return c.schema
}

// clash says where two fields disagree and what each side has there.
type clash struct {
	path       []string
	one, other string
}

func join(path []string, a, b arrow.Field) (arrow.Field, *clash) {
	if one, other := extension(a.Metadata), extension(b.Metadata); one != "" && other != "" && one != other {
		return a, &clash{path, one, other}
	}
	kids, others := children(a.Type), children(b.Type)
	if !sameShape(a.Type, b.Type) || len(kids) != len(others) {
		return a, &clash{path, a.Type.String(), b.Type.String()}
	}
	for i := range kids {
		if namesMatter(a.Type) && kids[i].Name != others[i].Name {
			return a, &clash{path, a.Type.String(), b.Type.String()}
		}
		kid, why := join(append(path[:len(path):len(path)], kids[i].Name), kids[i], others[i])
		if why != nil {
			return a, why
		}
		kids[i] = kid
	}
	a.Nullable = a.Nullable || b.Nullable
	a.Type = rebuild(a.Type, kids)
	if m, ok := a.Type.(*arrow.MapType); ok {
		m.KeysSorted = m.KeysSorted && b.Type.(*arrow.MapType).KeysSorted
	}
	return a, nil
}

// sameShape compares two types without their children.
func sameShape(a, b arrow.DataType) bool {
	if a.ID() != b.ID() {
		return false
	}
	switch a := a.(type) {
	case *arrow.FixedSizeListType:
		return a.Len() == b.(*arrow.FixedSizeListType).Len()
	case arrow.UnionType:
		return slices.Equal(a.TypeCodes(), b.(arrow.UnionType).TypeCodes())
	case *arrow.RunEndEncodedType:
		return arrow.TypeEqual(a.RunEnds(), b.(*arrow.RunEndEncodedType).RunEnds())
	}
	return len(children(a)) > 0 || len(children(b)) > 0 || arrow.TypeEqual(a, b)
}

// namesMatter tells whether the names of a type's children are part of it;
// those of lists and maps are habits of writers.
func namesMatter(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.STRUCT, arrow.SPARSE_UNION, arrow.DENSE_UNION:
		return true
	}
	return false
}

// extension returns the extension type that a field's metadata claims, with
// its parameters; "" if none.
func extension(md arrow.Metadata) string {
	name, ok := md.GetValue(ipc.ExtensionTypeKeyName)
	if !ok {
		return ""
	}
	params, _ := md.GetValue(ipc.ExtensionMetadataKeyName)
	return fmt.Sprintf("extension %s(%s)", name, params)
}
