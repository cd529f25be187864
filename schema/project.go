package schema

import (
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
)

// Selection names a field and, when Children is not nil, the fields of it
// that are wanted.
type Selection struct {
	Name     string
	Children []Selection
}

// Projection is a choice of columns and the schema that results from it.
type Projection struct {
	// Columns are the chosen columns in output order.
	Columns []Selection
	// Schema is the result, in the order of Columns; children of structs keep
	// the order of the full schema.
	Schema *arrow.Schema

	once        sync.Once
	fingerprint string
}

// Fingerprint is that of the projection's schema. It is made once.
func (p *Projection) Fingerprint() string {
	p.once.Do(func() { p.fingerprint = Fingerprint(p.Schema) })
	return p.fingerprint
}

// All selects every column whole.
func All(s *arrow.Schema) *Projection {
	p := &Projection{Columns: make([]Selection, s.NumFields()), Schema: s}
	for i, f := range s.Fields() {
		p.Columns[i].Name = f.Name
	}
	return p
}

// Project selects the fields that paths name: a path is a column's name,
// followed by the names of struct children below it. Columns come out in the
// order in which paths first name them. A nil list means All, an empty one no
// column at all. ErrUnknownColumn names a path without a field; ErrDuplicate
// one that is already selected, whole or in part.
func Project(s *arrow.Schema, paths [][]string) (*Projection, error) {
	if paths == nil {
		return All(s), nil
	}
	root := &node{}
	for _, path := range paths {
		if err := root.add(path); err != nil {
			return nil, err
		}
	}
	p := &Projection{Columns: make([]Selection, 0, len(root.order))}
	var fields []arrow.Field
	for _, name := range root.order {
		at := s.FieldIndices(name)
		if len(at) == 0 {
			return nil, unknown(root.kids[name].path)
		}
		sel, f, err := root.kids[name].apply(s.Field(at[0]))
		if err != nil {
			return nil, err
		}
		p.Columns, fields = append(p.Columns, sel), append(fields, f)
	}
	md := s.Metadata()
	p.Schema = arrow.NewSchema(fields, &md)
	return p, nil
}

// node is one name of the tree that all paths make together.
type node struct {
	path  []string // the first path that came by, for errors
	whole bool     // a path ends here
	order []string
	kids  map[string]*node
}

func (n *node) add(path []string) error {
	if len(path) == 0 {
		return fmt.Errorf("%w: an empty path", ErrUnknownColumn)
	}
	for i, name := range path {
		kid := n.kids[name]
		if kid == nil {
			kid = &node{path: path}
			if n.kids == nil {
				n.kids = map[string]*node{}
			}
			n.kids[name] = kid
			n.order = append(n.order, name)
		} else if last := i == len(path)-1; last || kid.whole {
			return fmt.Errorf("%w: column %s is already selected by %s", ErrDuplicate, quotePath(path), quotePath(kid.path))
		}
		n = kid
	}
	n.whole = true
	return nil
}

// apply cuts f down to what n selects of it.
func (n *node) apply(f arrow.Field) (Selection, arrow.Field, error) {
	sel := Selection{Name: f.Name}
	if n.whole {
		return sel, f, nil
	}
	t, ok := f.Type.(*arrow.StructType)
	if !ok {
		return sel, f, unknown(n.path)
	}
	for _, name := range n.order {
		if _, ok := t.FieldIdx(name); !ok {
			return sel, f, unknown(n.kids[name].path)
		}
	}
	var fields []arrow.Field
	for _, child := range t.Fields() {
		kid := n.kids[child.Name]
		if kid == nil {
			continue
		}
		s, cut, err := kid.apply(child)
		if err != nil {
			return sel, f, err
		}
		sel.Children, fields = append(sel.Children, s), append(fields, cut)
	}
	f.Type = arrow.StructOf(fields...)
	return sel, f, nil
}

func unknown(path []string) error {
	return fmt.Errorf("%w: %s", ErrUnknownColumn, quotePath(path))
}
