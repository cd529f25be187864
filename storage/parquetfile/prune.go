package parquetfile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// prune returns the part of node, which is served as stored, that target wants,
// and adds the leaves below it to leaves.
func prune(node *pqarrow.SchemaField, stored, target arrow.Field, leaves map[int]bool) (pqarrow.SchemaField, error) {
	out := *node
	have, want := children(stored.Type), children(target.Type)
	if stored.Type.ID() != target.Type.ID() || node.IsLeaf() && !arrow.TypeEqual(stored.Type, target.Type) {
		return out, fmt.Errorf("field %q is %s, not %s", stored.Name, stored.Type, target.Type)
	}
	if node.IsLeaf() {
		leaves[node.ColIndex] = true
		return out, nil
	}
	holder := &out // of the children
	if stored.Type.ID() == arrow.MAP {
		out.Children = []pqarrow.SchemaField{node.Children[0]}
		holder = &out.Children[0] // the entries
	}
	kids := holder.Children
	holder.Children = make([]pqarrow.SchemaField, len(want))
	decode := make([]arrow.Field, len(want))
	for i, w := range want {
		at, err := childIndex(stored.Type, w.Name, i)
		if err != nil {
			return out, fmt.Errorf("field %q: %w", stored.Name, err)
		}
		if holder.Children[i], err = prune(&kids[at], have[at], w, leaves); err != nil {
			return out, err
		}
		decode[i] = *holder.Children[i].Field
	}
	if holder != &out {
		holder.Field = &arrow.Field{Name: holder.Field.Name, Type: arrow.StructOf(decode...)}
	}
	out.Field = &arrow.Field{Name: node.Field.Name, Nullable: node.Field.Nullable, Type: rebuild(node.Field.Type, decode)}
	return out, nil
}

// childIndex finds the child that a struct calls name, or in lists and maps,
// where names mean nothing, the child at place i.
func childIndex(t arrow.DataType, name string, i int) (int, error) {
	s, ok := t.(*arrow.StructType)
	if !ok {
		return i, nil
	}
	at := s.FieldIndices(name)
	if len(at) != 1 {
		return 0, fmt.Errorf("it has %d fields %q", len(at), name)
	}
	return at[0], nil
}
