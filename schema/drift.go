package schema

import (
	"cmp"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Drift tells how the shards of a dataset differ in one column.
type Drift struct {
	Column string
	Kinds  []Kind // what there is, the most frequent first
}

// Kind is one type that a column has, with the shards it has it in.
type Kind struct {
	Type   string // "" : there is no such column
	Shards int
	First  string // the first of the shards
}

// Survey gathers where shards differ. Nullability and metadata may differ in
// any case and are not looked at.
type Survey struct {
	groups map[*arrow.Schema]*group
	order  []*group
}

// group is all shards that share one schema.
type group struct {
	schema *arrow.Schema
	shards int
	first  string
}

// Add takes one more shard; s is Plain.
func (s *Survey) Add(shard string, sc *arrow.Schema) {
	g := s.groups[sc]
	if g == nil {
		if s.groups == nil {
			s.groups = map[*arrow.Schema]*group{}
		}
		g = &group{schema: sc, first: shard}
		s.groups[sc] = g
		s.order = append(s.order, g)
	}
	g.shards++
}

// Drifts returns the columns that differ, in the order in which they are first
// seen; at most limit of them.
func (s *Survey) Drifts(limit int) []Drift {
	if len(s.order) < 2 {
		return nil
	}
	var out []Drift
	seen := map[string]bool{}
	for _, g := range s.order {
		for _, f := range g.schema.Fields() {
			if seen[f.Name] {
				continue
			}
			seen[f.Name] = true
			if kinds := s.kinds(f.Name); len(kinds) > 1 {
				out = append(out, Drift{Column: f.Name, Kinds: kinds})
			}
			if len(out) == limit {
				return out
			}
		}
	}
	return out
}

// kinds returns what the shards have under a name.
func (s *Survey) kinds(name string) []Kind {
	var kinds []Kind
	var fields []arrow.Field // beside kinds; without a type where there is none
	for _, g := range s.order {
		var f arrow.Field
		if at := g.schema.FieldIndices(name); len(at) > 0 {
			f = g.schema.Field(at[0])
		}
		i := slices.IndexFunc(fields, func(o arrow.Field) bool { return sameKind(f, o) })
		if i < 0 {
			k := Kind{First: g.first}
			if f.Type != nil {
				k.Type = typeText(f)
			}
			i = len(kinds)
			kinds, fields = append(kinds, k), append(fields, f)
		}
		kinds[i].Shards += g.shards
	}
	slices.SortStableFunc(kinds, func(a, b Kind) int { return cmp.Compare(b.Shards, a.Shards) })
	return kinds
}

// sameKind is what a strict contract calls the same.
func sameKind(a, b arrow.Field) bool {
	if a.Type == nil || b.Type == nil {
		return a.Type == b.Type
	}
	_, why := join(nil, a, b, exact)
	return why == nil
}
