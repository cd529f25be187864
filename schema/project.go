package schema

import "github.com/apache/arrow-go/v18/arrow"

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
}

// All selects every column whole.
func All(s *arrow.Schema) *Projection { return nil }

// Project selects the fields that paths name, in that order.
func Project(s *arrow.Schema, paths [][]string) (*Projection, error) { return nil, nil }
