package auth

import "slices"

// Columns is what may be read of one dataset: all of its columns, or a set of top-level names. The zero value is none.
type Columns struct {
	all   bool
	names map[string]struct{}
}

// AllColumns allows every column, also those that the dataset gains later.
func AllColumns() Columns { return Columns{all: true} }

// OnlyColumns allows the named top-level columns, each with everything nested in it.
func OnlyColumns(names ...string) Columns {
	c := Columns{names: make(map[string]struct{}, len(names))}
	for _, n := range names {
		c.names[n] = struct{}{}
	}
	return c
}

// All reports whether every column may be read.
func (c Columns) All() bool { return c.all }

// Has reports whether the top-level column may be read. Names are compared byte by byte.
func (c Columns) Has(name string) bool {
	if c.all {
		return true
	}
	_, ok := c.names[name]
	return ok
}

// ByGrants is the policy that takes a principal at the word of its grants: nothing is readable by default, and grants
// that match the same dataset add up.
type ByGrants struct{}

// Columns returns the union of what the matching grants allow.
func (ByGrants) Columns(p *Principal, dataset string) (Columns, bool) {
	if p == nil {
		return Columns{}, false
	}
	var names []string
	known := false
	for _, g := range p.Grants {
		switch {
		case !g.Datasets.Match(dataset):
		case g.Columns == nil:
			return AllColumns(), true
		default:
			known = true
			names = slices.Concat(names, g.Columns)
		}
	}
	return OnlyColumns(names...), known
}
