package schema

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Rule says what the schemas of one dataset's shards must share. The zero Rule
// is the strict one: the same column names and types everywhere.
type Rule struct {
	// Widen lets columns be missing or of type null, which then are null there,
	// and lets integers differ in width and sign, floats in width: the result has
	// the narrowest type that holds all of them. This goes for children too.
	// Integers do not meet floats: the result would depend on who comes first.
	Widen bool
	// Given is the schema that is served whatever shards there are: what they
	// have must fit it without loss, what they lack is null. Columns that it
	// lacks are left out. Nil: none.
	Given *arrow.Schema
}

// Without returns the rule for shards that do not have the named columns, for
// those come from elsewhere.
func (r Rule) Without(names []string) Rule {
	if r.Given == nil || len(names) == 0 {
		return r
	}
	md := r.Given.Metadata()
	fields := slices.DeleteFunc(r.Given.Fields(), func(f arrow.Field) bool { return slices.Contains(names, f.Name) })
	r.Given = arrow.NewSchema(fields, &md)
	return r
}

// Contract folds the schemas of a dataset's shards into one. Under every rule
// the order of columns is free (the first shard's counts), as are metadata (the
// first shard's count), nullability at any depth (nullable anywhere is
// nullable) and the names inside lists and maps, which mean nothing. The
// children of a struct belong to its type; their order does too unless it is
// widened. Two different extension types do not agree, even over the same storage.
type Contract struct {
	rule     Rule
	first    string // the shard whose order and metadata count
	bound    map[*arrow.Schema]bool
	fields   []arrow.Field
	origin   []string // by column: the shard that it was first seen in
	metadata arrow.Metadata
	index    map[string]int
	schema   *arrow.Schema
}

// NewContract returns a contract that binds nobody yet.
func NewContract(r Rule) *Contract {
	c := &Contract{rule: r, bound: map[*arrow.Schema]bool{}}
	if r.Given != nil {
		c.begin("", r.Given)
	}
	return c
}

// Add binds one more shard to the contract; s is already Plain. ErrMismatch
// names the shard, the field, both types and what to do; the contract then
// stays as it was.
func (c *Contract) Add(shard string, s *arrow.Schema) error {
	if c.bound[s] { // shards of one schema usually share it
		return nil
	}
	var err error
	switch {
	case c.index == nil:
		c.begin(shard, s)
	case c.rule.Given != nil:
		err = c.fits(shard, s)
	case c.rule.Widen:
		err = c.widen(shard, s)
	default:
		err = c.strict(shard, s)
	}
	c.bound[s] = err == nil
	return err
}

func (c *Contract) begin(shard string, s *arrow.Schema) {
	c.first, c.fields, c.metadata = shard, s.Fields(), s.Metadata()
	c.origin = slices.Repeat([]string{shard}, len(c.fields))
	c.index = make(map[string]int, len(c.fields))
	for i, f := range c.fields {
		c.index[f.Name] = i
	}
}

// strict wants the same columns.
func (c *Contract) strict(shard string, s *arrow.Schema) error {
	for _, f := range s.Fields() {
		if _, ok := c.index[f.Name]; !ok {
			return fmt.Errorf("%w: shard %q has column %q (%s), which shard %q lacks: %s", ErrMismatch, shard, f.Name, f.Type, c.first, adviceWiden)
		}
	}
	for _, f := range c.fields {
		if !s.HasField(f.Name) {
			return fmt.Errorf("%w: shard %q lacks column %q (%s), which shard %q has: %s", ErrMismatch, shard, f.Name, f.Type, c.first, adviceWiden)
		}
	}
	return c.join(shard, s)
}

// widen takes missing columns for nulls.
func (c *Contract) widen(shard string, s *arrow.Schema) error {
	if err := c.join(shard, s); err != nil {
		return err
	}
	for i, f := range c.fields {
		if !s.HasField(f.Name) {
			c.fields[i].Nullable = true
		}
	}
	for _, f := range s.Fields() {
		if _, ok := c.index[f.Name]; !ok {
			f.Nullable = true
			c.index[f.Name] = len(c.fields)
			c.fields, c.origin = append(c.fields, f), append(c.origin, shard)
		}
	}
	return nil
}

// join joins the columns that both sides have.
func (c *Contract) join(shard string, s *arrow.Schema) error {
	joined := slices.Clone(c.fields)
	for _, f := range s.Fields() {
		i, ok := c.index[f.Name]
		if !ok {
			continue
		}
		j, why := join([]string{f.Name}, c.fields[i], f, c.manner())
		if why != nil {
			return fmt.Errorf("%w: column %s is %s in shard %q but %s in shard %q: %s",
				ErrMismatch, quotePath(why.path), why.other, shard, why.one, c.origin[i], c.advice(f, c.fields[i]))
		}
		joined[i] = j
	}
	c.fields, c.schema = joined, nil
	return nil
}

func (c *Contract) manner() manner {
	if c.rule.Widen {
		return wide
	}
	return exact
}

// What to do about a mismatch.
const (
	adviceWiden   = "schema: widen in the config takes what a shard lacks as nulls and joins numbers of different width; exclude leaves files out"
	adviceExclude = "there is no type that holds both without loss: leave one of them out with exclude, or write it anew"
)

func (c *Contract) advice(a, b arrow.Field) string {
	if !c.rule.Widen {
		if _, why := join(nil, a, b, wide); why == nil {
			return adviceWiden
		}
	}
	return adviceExclude
}

// fits wants a shard whose columns can be served as the given ones.
func (c *Contract) fits(shard string, s *arrow.Schema) error {
	for _, want := range c.fields {
		at := s.FieldIndices(want.Name)
		if len(at) == 0 {
			if !want.Nullable {
				return fmt.Errorf("%w: shard %q lacks column %q, which the given schema says is %s, not null: let it be null, or leave the shard out with exclude",
					ErrMismatch, shard, want.Name, want.Type)
			}
			continue
		}
		have := s.Field(at[0])
		j, why := join([]string{want.Name}, want, have, fitted)
		switch {
		case why != nil:
		case !alike(j, want):
			why = &clash{[]string{want.Name}, typeText(want), typeText(have)}
		case have.Nullable && !want.Nullable:
			return fmt.Errorf("%w: column %q is nullable in shard %q, and the given schema says not null: take that out of the schema, or leave the shard out with exclude",
				ErrMismatch, want.Name, shard)
		}
		if why != nil {
			return fmt.Errorf("%w: column %s is %s in shard %q, which cannot be served as the given schema's %s without loss: give it another type, or leave the shard out with exclude",
				ErrMismatch, quotePath(why.path), why.other, shard, why.one)
		}
	}
	return nil
}

// Schema returns the joined schema; nil before the first Add, unless it is given.
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

// manner is how two fields are joined.
type manner int

const (
	exact  manner = iota // the same types
	wide                 // as Rule.Widen allows
	fitted               // b as a, which is given
)

// join joins two fields of one name.
func join(path []string, a, b arrow.Field, how manner) (arrow.Field, *clash) {
	one, other := extension(a.Metadata), extension(b.Metadata)
	if one != "" && other != "" && one != other {
		return a, &clash{path, one, other}
	}
	nullable := a.Nullable || b.Nullable
	if how != exact && one == "" && other == "" {
		if t := widest(a.Type, b.Type, how); t != nil {
			a.Type, a.Nullable = t, nullable || t.ID() == arrow.NULL
			return a, nil
		}
	}
	if how != exact && (a.Type.ID() == arrow.NULL) != (b.Type.ID() == arrow.NULL) {
		if a.Type.ID() == arrow.NULL {
			a = b
		}
		a.Nullable = true
		return a, nil
	}
	t, why := joinTypes(path, a.Type, b.Type, how)
	if why != nil {
		return a, why
	}
	a.Type, a.Nullable = t, nullable
	return a, nil
}

func joinTypes(path []string, a, b arrow.DataType, how manner) (arrow.DataType, *clash) {
	kids, others := children(a), children(b)
	if !sameShape(a, b) {
		return a, &clash{path, a.String(), b.String()}
	}
	if how != exact && a.ID() == arrow.STRUCT {
		return joinStructs(path, kids, others, how)
	}
	if !widenable(a) {
		how = exact
	}
	if len(kids) != len(others) {
		return a, &clash{path, a.String(), b.String()}
	}
	for i := range kids {
		if namesMatter(a) && kids[i].Name != others[i].Name {
			return a, &clash{path, a.String(), b.String()}
		}
		kid, why := join(below(path, kids[i]), kids[i], others[i], how)
		if why != nil {
			return a, why
		}
		kids[i] = kid
	}
	t := rebuild(a, kids)
	if m, ok := t.(*arrow.MapType); ok {
		m.KeysSorted = m.KeysSorted && b.(*arrow.MapType).KeysSorted
	}
	return t, nil
}

// widenable tells whether the children of a type may be widened.
func widenable(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.STRUCT, arrow.LIST, arrow.LARGE_LIST, arrow.FIXED_SIZE_LIST, arrow.MAP:
		return true
	}
	return false
}

// joinStructs takes children that one side lacks for nulls there.
func joinStructs(path []string, kids, others []arrow.Field, how manner) (arrow.DataType, *clash) {
	has := func(fields []arrow.Field, name string) int {
		return slices.IndexFunc(fields, func(f arrow.Field) bool { return f.Name == name })
	}
	for i, k := range kids {
		at := has(others, k.Name)
		if at < 0 {
			kids[i].Nullable = true
			continue
		}
		kid, why := join(below(path, k), k, others[at], how)
		if why != nil {
			return nil, why
		}
		kids[i] = kid
	}
	for _, o := range others {
		if has(kids, o.Name) < 0 {
			o.Nullable = true
			kids = append(kids, o)
		}
	}
	return arrow.StructOf(kids...), nil
}

func below(path []string, f arrow.Field) []string { return append(path[:len(path):len(path)], f.Name) }

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
