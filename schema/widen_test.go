package schema

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"
)

var (
	i8, u8, u64 = arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint64
	f32, f64    = arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64
)

func TestNumbersWidenWithoutLoss(t *testing.T) {
	for _, tt := range []struct{ a, b, want arrow.DataType }{
		{i8, i64, i64},
		{i8, u8, arrow.PrimitiveTypes.Int16},
		{arrow.PrimitiveTypes.Uint32, i8, i64},
		{u64, i8, nil},
		{u8, u64, u64},
		{f32, f64, f64},
		{i32, f64, nil},
		{f32, arrow.FixedWidthTypes.Float16, f32},
		{i8, text, nil},
		{i8, arrow.FixedWidthTypes.Date32, nil},
		{i8, arrow.FixedWidthTypes.Boolean, nil},
	} {
		for _, got := range []arrow.DataType{widest(tt.a, tt.b, wide), widest(tt.b, tt.a, wide)} {
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%v and %v: %v, want %v", tt.a, tt.b, got, tt.want)
			}
		}
	}
}

// The type of many is the same in whatever order they come.
func TestWidestProperty(t *testing.T) {
	fold := func(all []arrow.DataType) (out arrow.DataType) {
		out = all[0]
		for _, a := range all[1:] {
			if out = widest(out, a, wide); out == nil {
				return nil
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.SampledFrom(ladder), 1, 5).Draw(t, "types")
		out, again := fold(all), fold(rapid.Permutation(all).Draw(t, "order"))
		if fmt.Sprint(out) != fmt.Sprint(again) {
			t.Fatalf("%v, and %v in another order", out, again)
		}
		for _, a := range all {
			if out != nil && !numbers[out.ID()].holds(numbers[a.ID()]) {
				t.Fatalf("%v does not hold %v", out, a)
			}
		}
	})
}

func TestB90NullColumnsTakeTheOthersType(t *testing.T) {
	null := of(nullable(field("x", arrow.Null)))
	strings := of(field("x", text))
	for _, order := range [][2]*arrow.Schema{{null, strings}, {strings, null}} {
		c := NewContract(Rule{Widen: true})
		must(t, c.Add("a", order[0]))
		must(t, c.Add("b", order[1]))
		if want := of(nullable(field("x", text))); !c.Schema().Equal(want) {
			t.Errorf("joined %v, want %v", c.Schema(), want)
		}
	}
}

func TestWideningJoinsColumnsAndChildren(t *testing.T) {
	c := NewContract(Rule{Widen: true})
	must(t, c.Add("a", of(field("x", i8), field("s", arrow.StructOf(field("p", i8), field("q", text))), field("l", arrow.ListOf(arrow.Null)))))
	must(t, c.Add("b", of(field("y", f32), field("s", arrow.StructOf(field("r", text), field("p", i64))), field("l", arrow.ListOf(i64)))))
	must(t, c.Add("c", of(field("x", i32))))
	want := of(
		nullable(field("x", i32)),
		nullable(field("s", arrow.StructOf(field("p", i64), nullable(field("q", text)), nullable(field("r", text))))),
		nullable(field("l", arrow.ListOf(i64))),
		nullable(field("y", f32)),
	)
	if !c.Schema().Equal(want) {
		t.Errorf("joined %v\nwant %v", c.Schema(), want)
	}
}

func TestWideningRefusesLoss(t *testing.T) {
	for name, tt := range map[string]struct{ a, b *arrow.Schema }{
		"int64 and float64": {of(field("x", i64)), of(field("x", f64))},
		"text and number":   {of(field("x", text)), of(field("x", i64))},
		"in a list":         {of(field("x", arrow.ListOf(i64))), of(field("x", arrow.ListOf(f64)))},
		"times":             {of(field("x", arrow.FixedWidthTypes.Timestamp_us)), of(field("x", arrow.FixedWidthTypes.Timestamp_ns))},
		"list lengths":      {of(field("x", arrow.FixedSizeListOf(2, i64))), of(field("x", arrow.FixedSizeListOf(3, i64)))},
	} {
		c := NewContract(Rule{Widen: true})
		must(t, c.Add("one", tt.a))
		err := c.Add("two", tt.b)
		if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), `"x`) || !strings.Contains(err.Error(), "exclude") {
			t.Errorf("%s: %v", name, err)
		}
		if !c.Schema().Equal(tt.a) {
			t.Errorf("%s: a refused shard changed the contract", name)
		}
	}
}

// Strictness says when widening would help, and when it would not.
func TestStrictAdvises(t *testing.T) {
	for want, b := range map[string]*arrow.Schema{
		"schema: widen": of(field("x", i32)),
		"exclude":       of(field("x", text)),
	} {
		c := NewContract(Rule{})
		must(t, c.Add("a", of(field("x", i64))))
		if err := c.Add("b", b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestGivenSchema(t *testing.T) {
	given := of(nullable(field("x", i64)), nullable(field("y", text)), field("z", i32), nullable(field("f", f64)))
	for name, tt := range map[string]struct {
		s    *arrow.Schema
		says string
	}{
		"as given":        {of(field("x", i64), field("y", text), field("z", i32)), ""},
		"narrower, lacks": {of(field("x", i8), field("z", i8)), ""},
		"ints as floats":  {of(field("z", i32), field("f", i32)), ""},
		"too many bits":   {of(field("z", i32), field("f", i64)), `column "f" is int64 in shard "s"`},
		"null typed":      {of(field("y", arrow.Null), field("z", i32)), ""},
		"more":            {of(field("z", i32), field("more", text)), ""},
		"wider":           {of(field("x", f64), field("z", i32)), `column "x" is float64 in shard "s"`},
		"lacks a must":    {of(field("x", i64)), `lacks column "z"`},
		"null where not":  {of(nullable(field("z", i32))), "nullable in shard"},
	} {
		c := NewContract(Rule{Given: given})
		err := c.Add("s", tt.s)
		if tt.says == "" && err != nil || tt.says != "" && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
		if !c.Schema().Equal(given) {
			t.Errorf("%s: the given schema became %v", name, c.Schema())
		}
	}
}

func TestDrifts(t *testing.T) {
	var s Survey
	one, two, three := of(field("x", i64), field("y", text)), of(field("x", i32), nullable(field("y", text))), of(field("y", text))
	for i, sc := range []*arrow.Schema{one, two, two, three, one, two} {
		s.Add(fmt.Sprint(i), sc)
	}
	want := []Drift{{"x", []Kind{{"int32", 3, "1"}, {"int64", 2, "0"}, {"", 1, "3"}}}}
	if got := s.Drifts(10); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := s.Drifts(0); len(got) > 1 {
		t.Errorf("%+v", got)
	}
}

// What a shard is asked for, it has; what is not asked for is null or not wanted.
func TestFit(t *testing.T) {
	stored := of(field("x", i8), field("s", arrow.StructOf(field("p", i8), field("q", text))), field("n", arrow.Null), field("l", arrow.ListOf(i32)))
	full := of(
		field("y", f64), field("x", i32), field("n", text),
		field("s", arrow.StructOf(field("r", text), field("q", text), field("p", i64))), field("l", arrow.ListOf(i32)),
	)
	fit := NewFit(All(full), stored)
	want := of(field("x", i8), field("s", arrow.StructOf(field("q", text), field("p", i8))), field("l", arrow.ListOf(i32)))
	if fit.Alike || !reflect.DeepEqual(fit.From, []int{-1, 0, -1, 1, 2}) || !fit.Stored.Schema.Equal(want) {
		t.Errorf("%v of %v", fit.From, fit.Stored.Schema)
	}
	p, err := Project(full, [][]string{{"l"}, {"s", "r"}})
	must(t, err)
	fit = NewFit(p, stored)
	if !fit.Stored.Schema.Equal(of(field("l", arrow.ListOf(i32)), field("s", arrow.StructOf(field("p", i8), field("q", text))))) {
		t.Errorf("%v: a struct of which no child is wanted is asked for whole", fit.Stored.Schema)
	}
	p, err = Project(full, [][]string{{"l"}})
	must(t, err)
	if fit = NewFit(p, stored); !fit.Alike || fit.Stored != p {
		t.Errorf("%+v: nothing had to be fitted", fit)
	}
}
