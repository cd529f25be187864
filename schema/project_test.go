package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
)

func TestProject(t *testing.T) {
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	box := arrow.StructOf(field("x", i32), nullable(field("y", i32)), field("deep", arrow.StructOf(field("p", text), field("q", text))))
	full := arrow.NewSchema([]arrow.Field{
		field("id", i64),
		{Name: "box", Type: box, Nullable: true, Metadata: md},
		field("boxes", arrow.ListOf(box)),
		field("a.b", i32),
	}, &md)
	type paths = [][]string
	for _, tt := range []struct {
		paths paths
		want  string // columns as printed below, or the error's text
		err   error
	}{
		{paths: nil, want: "id box boxes a.b"},
		{paths: paths{}, want: ""},
		{paths: paths{{"boxes"}, {"id"}}, want: "boxes id"},
		{paths: paths{{"a.b"}}, want: "a.b"},
		{paths: paths{{"box", "y"}, {"id"}, {"box", "x"}}, want: "box(x y) id"},
		{paths: paths{{"box", "deep", "q"}}, want: "box(deep(q))"},
		{paths: paths{{"box", "deep"}}, want: "box(deep)"},
		{paths: paths{{"nope"}}, want: `"nope"`, err: ErrUnknownColumn},
		{paths: paths{{"ID"}}, want: `"ID"`, err: ErrUnknownColumn},
		{paths: paths{{"box", "nope"}}, want: `"box.nope"`, err: ErrUnknownColumn},
		{paths: paths{{"id", "x"}}, want: `"id.x"`, err: ErrUnknownColumn},
		{paths: paths{{"boxes", "x"}}, want: `"boxes.x"`, err: ErrUnknownColumn},
		{paths: paths{{}}, want: "empty path", err: ErrUnknownColumn},
		{paths: paths{{"id"}, {"id"}}, want: `"id"`, err: ErrDuplicate},
		{paths: paths{{"box"}, {"box", "x"}}, want: `"box.x"`, err: ErrDuplicate},
		{paths: paths{{"box", "x"}, {"box"}}, want: `"box"`, err: ErrDuplicate},
		{paths: paths{{"box", "x"}, {"box", "x"}}, want: `"box.x"`, err: ErrDuplicate},
	} {
		p, err := Project(full, tt.paths)
		if err != nil {
			if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: %v, want %v naming %s", tt.paths, err, tt.err, tt.want)
			}
			continue
		}
		if got := printSelections(p.Columns); got != tt.want || tt.err != nil {
			t.Errorf("%v: columns %q, want %q, %v", tt.paths, got, tt.want, tt.err)
		}
		if !p.Schema.Metadata().Equal(md) || p.Schema.NumFields() != len(p.Columns) {
			t.Errorf("%v: schema %v", tt.paths, p.Schema)
		}
	}
	p, _ := Project(full, paths{{"box", "y"}})
	f := p.Schema.Field(0)
	if want := arrow.StructOf(nullable(field("y", i32))); !arrow.TypeEqual(f.Type, want) || !f.Nullable || !f.Metadata.Equal(md) {
		t.Errorf("box is %v", f)
	}
}

func printSelections(list []Selection) string {
	var words []string
	for _, s := range list {
		if s.Children == nil {
			words = append(words, s.Name)
		} else {
			words = append(words, fmt.Sprintf("%s(%s)", s.Name, printSelections(s.Children)))
		}
	}
	return strings.Join(words, " ")
}
