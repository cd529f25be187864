package schema

import (
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
)

func TestNotation(t *testing.T) {
	for in, want := range map[string]arrow.DataType{
		"int64":                        i64,
		" string ":                     text,
		"double":                       f64,
		"date32[day]":                  arrow.FixedWidthTypes.Date32,
		"date64":                       arrow.FixedWidthTypes.Date64,
		"timestamp[us]":                &arrow.TimestampType{Unit: arrow.Microsecond},
		"timestamp[ns, tz=+01:00]":     &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "+01:00"},
		"duration[s]":                  &arrow.DurationType{Unit: arrow.Second},
		"time32[ms]":                   arrow.FixedWidthTypes.Time32ms,
		"decimal128(10, 2)":            &arrow.Decimal128Type{Precision: 10, Scale: 2},
		"fixed_size_binary[16]":        &arrow.FixedSizeBinaryType{ByteWidth: 16},
		"list<item: float>":            arrow.ListOf(f32),
		"list<int8 not null>":          arrow.ListOfField(field("item", i8)),
		"fixed_size_list<float>[8]":    arrow.FixedSizeListOf(8, f32),
		"map<string, int64>":           arrow.MapOf(text, i64),
		"struct<a b: int8, c: string>": arrow.StructOf(nullable(field("a b", i8)), nullable(field("c", text))),
		"struct<a: list<map<string, struct<x: bool not null>>>>": arrow.StructOf(nullable(field("a",
			arrow.ListOf(arrow.MapOf(text, arrow.StructOf(field("x", arrow.FixedWidthTypes.Boolean))))))),
	} {
		f, err := ParseField("x", in)
		if err != nil || !arrow.TypeEqual(f.Type, want) || !f.Nullable {
			t.Errorf("%q: %v, %v, want %v", in, f, err, want)
		}
	}
	if f, err := ParseField("x", "list<item: int8> not null"); err != nil || f.Nullable {
		t.Errorf("%v, %v", f, err)
	}
}

func TestNotationRefuses(t *testing.T) {
	for _, text := range []string{
		"", "int", "int64]", "int64 x", "list", "list<", "list<int8", "list<int8, int8>", "map<string>", "struct<int8>", "timestamp", "timestamp[xs]",
		"timestamp[us, UTC]", "time32[ns]", "decimal128(0, 0)", "decimal128(39, 2)", "decimal128(10)", "fixed_size_binary[0]", "fixed_size_binary[-1]",
		"fixed_size_list<int8>", "fixed_size_list<int8>[99999999999]", "date32[ms]", "not null",
	} {
		if f, err := ParseField("x", text); !errors.Is(err, ErrNotation) {
			t.Errorf("%q: %v, %v, want ErrNotation", text, f, err)
		}
	}
	if _, err := ParseField("x", "struct<a: int8, a: int8>"); !errors.Is(err, ErrDuplicate) {
		t.Errorf("%v, want ErrDuplicate", err)
	}
}

func FuzzNotation(f *testing.F) {
	for _, seed := range []string{
		"int64 not null", "struct<a: list<item: float>, b: timestamp[us, tz=UTC]>", "map<string, fixed_size_list<x: double>[3]>", "decimal256(40, -3)",
		"list<list<list<list<int8>>>>", "time64[us]", "struct<: int8>",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseField("x", text)
		if err == nil && got.Type == nil {
			t.Errorf("%q: neither a type nor an error", text)
		}
	})
}
