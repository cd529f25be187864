package schema

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// Fit says how what one shard holds becomes the columns of a projection of the
// whole dataset.
type Fit struct {
	// Stored is what to ask of the shard: those of the columns that it has, in
	// their own types where those differ.
	Stored *Projection
	// From is, for each column of the projection, its place in Stored; -1 if it
	// is not read from the shard: it is null there, or known otherwise.
	From []int
	// Alike tells that Stored is the projection itself.
	Alike bool
}

// NewFit fits a shard whose schema, in plain form, is stored: one that a
// Contract has let in whose result p is a projection of.
func NewFit(p *Projection, stored *arrow.Schema) *Fit {
	fit := &Fit{Stored: &Projection{}, From: make([]int, len(p.Columns)), Alike: true}
	fields := make([]arrow.Field, 0, len(p.Columns))
	for i, want := range p.Schema.Fields() {
		fit.From[i] = -1
		at := stored.FieldIndices(want.Name)
		if len(at) == 0 || nullOnly(stored.Field(at[0]).Type, want.Type) {
			fit.Alike = false
			continue
		}
		have := stored.Field(at[0])
		if t := asked(have.Type, want.Type); !sameTypes(t, want.Type) {
			have.Type = t
			fit.Alike = false
		} else {
			have = want
		}
		fit.From[i] = len(fields)
		fields = append(fields, have)
		fit.Stored.Columns = append(fit.Stored.Columns, p.Columns[i])
	}
	if fit.Alike {
		fit.Stored = p
		return fit
	}
	md := p.Schema.Metadata()
	fit.Stored.Schema = arrow.NewSchema(fields, &md)
	return fit
}

// nullOnly tells whether nothing is stored where something is wanted.
func nullOnly(have, want arrow.DataType) bool {
	return have.ID() == arrow.NULL && want.ID() != arrow.NULL
}

// asked returns the part of a stored type that serves a wanted one: of structs
// the children that both have, in the wanted order.
func asked(have, want arrow.DataType) arrow.DataType {
	kids, wanted := children(have), children(want)
	if have.ID() != want.ID() || len(kids) == 0 || len(wanted) == 0 {
		return have
	}
	if have.ID() == arrow.STRUCT {
		return askedStruct(have.(*arrow.StructType), wanted)
	}
	if len(kids) != len(wanted) {
		return have
	}
	for i := range kids {
		kids[i].Type = asked(kids[i].Type, wanted[i].Type)
	}
	return rebuild(have, kids)
}

// askedStruct asks for the whole struct when none of its children are wanted:
// something has to tell which rows are null.
func askedStruct(have *arrow.StructType, wanted []arrow.Field) arrow.DataType {
	var fields []arrow.Field
	for _, w := range wanted {
		if f, ok := have.FieldByName(w.Name); ok && !nullOnly(f.Type, w.Type) {
			f.Type = asked(f.Type, w.Type)
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		return have
	}
	return arrow.StructOf(fields...)
}
