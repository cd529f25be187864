package snapshot

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/schema"
)

func TestPartitions(t *testing.T) {
	for key, want := range map[string][]Partition{
		"a.parquet":                                        nil,
		"year=2024/month=07/a.parquet":                     {{Name: "year", Value: "2024"}, {Name: "month", Value: "07"}},
		"deep/year=2024/other/a=b=c/x=y.parquet":           {{Name: "year", Value: "2024"}, {Name: "a", Value: "b=c"}},
		"=v/a.parquet":                                     nil,
		"k=/a.parquet":                                     {{Name: "k"}},
		"k=__HIVE_DEFAULT_PARTITION__/a":                   {{Name: "k", Value: "__HIVE_DEFAULT_PARTITION__", Null: true}},
		"k=%5F_HIVE_DEFAULT_PARTITION__/a":                 {{Name: "k", Value: "__HIVE_DEFAULT_PARTITION__"}},
		"brand=Brand%2321/a":                               {{Name: "brand", Value: "Brand#21"}},
		"brand=Brand%252321/a":                             {{Name: "brand", Value: "Brand%2321"}},
		"t=10%3A00+1/a":                                    {{Name: "t", Value: "10:00+1"}},
		"p=100%/q=%zz/r=%4/a":                              {{Name: "p", Value: "100%"}, {Name: "q", Value: "%zz"}, {Name: "r", Value: "%4"}},
		"a%3Db=%2F/a":                                      {{Name: "a=b", Value: "/"}},
		"stra%C3%9Fe=%F0%9F%98%80/a":                       {{Name: "straße", Value: "😀"}},
		"path/k=v/__HIVE_DEFAULT_PARTITION__/part.parquet": {{Name: "k", Value: "v"}},
	} {
		if got, err := Partitions(key); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", key, got, err, want)
		}
	}
	for key, want := range map[string]error{"a=1/b=2/a=3/x": schema.ErrDuplicate, "a=1/%61=2/x": schema.ErrDuplicate, "a=%FF/x": ErrUnsupported} {
		if _, err := Partitions(key); !errors.Is(err, want) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v, want %v", key, err, want)
		}
	}
}

// Whatever a writer escapes comes back as it was.
func TestPartitionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		var escaped strings.Builder
		for _, b := range []byte(value) {
			fmt.Fprintf(&escaped, "%%%02X", b)
		}
		got, err := Partitions("k=" + escaped.String() + "/a")
		if err != nil || len(got) != 1 || got[0].Value != value {
			t.Fatalf("%q became %+v, %v", value, got, err)
		}
	})
}

// hive makes a snapshot of one shard for each key.
func hive(r Rules, keys ...string) (*Snapshot, error) {
	r.Hive = true
	var shards []*Shard
	for _, k := range keys {
		shards = append(shards, shard(k, Segment{Rows: 1, Bytes: 8}))
	}
	return New("d", shards, r)
}

func TestPartitionColumnsHaveTypesThatLoseNothing(t *testing.T) {
	for values, want := range map[string]arrow.DataType{
		"1 -5 9223372036854775807":     arrow.PrimitiveTypes.Int64,
		"1 9223372036854775808":        arrow.BinaryTypes.String,
		"01 02":                        arrow.BinaryTypes.String,
		"1 +1":                         arrow.BinaryTypes.String,
		"0 __HIVE_DEFAULT_PARTITION__": arrow.PrimitiveTypes.Int64,
		"__HIVE_DEFAULT_PARTITION__":   arrow.BinaryTypes.String,
		"2024-02-29 1999-01-01":        arrow.FixedWidthTypes.Date32,
		"2024-02-30":                   arrow.BinaryTypes.String,
		"2024-02-29 5":                 arrow.BinaryTypes.String,
		"a B":                          arrow.BinaryTypes.String,
	} {
		var keys []string
		for _, v := range strings.Fields(values) {
			keys = append(keys, "k="+v+"/a")
		}
		s, err := hive(Rules{}, keys...)
		if err != nil {
			t.Errorf("%s: %v", values, err)
			continue
		}
		f := s.Schema.Field(s.Schema.NumFields() - 1)
		if f.Name != "k" || !f.Nullable || !arrow.TypeEqual(f.Type, want) {
			t.Errorf("%s: %v, want %v", values, f, want)
		}
		for i, sh := range s.Shards {
			one, err := s.Constant(i, f)
			if err != nil {
				t.Fatal(err)
			}
			text := nullValue
			if one != nil {
				text = one.ValueStr(0)
			}
			if want := strings.TrimSuffix(strings.TrimPrefix(sh.Key, "k="), "/a"); text != want {
				t.Errorf("shard %s says %s", sh.Key, text)
			}
		}
	}
}

func TestPartitionsAreHeldAgainstTheRule(t *testing.T) {
	x := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64}
	k := func(typ arrow.DataType, nullable bool) arrow.Field {
		return arrow.Field{Name: "k", Type: typ, Nullable: nullable}
	}
	given := func(f ...arrow.Field) Rules { return Rules{Schema: schema.Rule{Given: arrow.NewSchema(f, nil)}} }
	for name, tt := range map[string]struct {
		rules Rules
		keys  []string
		want  error
		says  string
	}{
		"missing, strict":   {Rules{}, []string{"k=1/a", "b"}, schema.ErrMismatch, `shard "b" lies in no folder k=`},
		"missing, widen":    {Rules{Schema: schema.Rule{Widen: true}}, []string{"k=1/a", "b"}, nil, ""},
		"in the file too":   {Rules{}, []string{"x=1/a"}, schema.ErrDuplicate, `column "x" is both`},
		"given":             {given(k(arrow.PrimitiveTypes.Int8, false), x), []string{"k=007/a"}, nil, ""},
		"given, left out":   {given(x), []string{"k=007/a", "b"}, nil, ""},
		"given, no number":  {given(k(arrow.PrimitiveTypes.Int8, true), x), []string{"k=one/a"}, schema.ErrMismatch, `"one" is no int8`},
		"given, too large":  {given(k(arrow.PrimitiveTypes.Int8, true), x), []string{"k=300/a"}, schema.ErrMismatch, `k=300/a`},
		"given, nested":     {given(k(arrow.ListOf(x.Type), true), x), []string{"k=[1]/a"}, schema.ErrMismatch, `"k"`},
		"given, never null": {given(k(arrow.PrimitiveTypes.Int8, false), x), []string{"k=1/a", "b"}, schema.ErrMismatch, `shard "b"`},
		"given, text":       {given(k(arrow.BinaryTypes.String, true), x), []string{"k=(null)/a"}, nil, ""},
	} {
		s, err := hive(tt.rules, tt.keys...)
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v and %q", name, err, tt.want, tt.says)
		}
		if err == nil && tt.rules.Schema.Given != nil && !s.Schema.Equal(tt.rules.Schema.Given) {
			t.Errorf("%s: %v is not the given schema", name, s.Schema)
		}
	}
	s, err := hive(given(k(arrow.BinaryTypes.String, true), x), "k=(null)/a")
	if err != nil {
		t.Fatal(err)
	}
	if one, err := s.Constant(0, s.Schema.Field(0)); err != nil || one.IsNull(0) {
		t.Errorf("%v, %v: a text that looks like a null is a text", one, err)
	}
}

// Folders are no part of the identity beyond the keys, which have them anyway.
func TestPartitioningLeavesTheIdentityAlone(t *testing.T) {
	s, err := hive(Rules{}, "k=1/a")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := New("d", s.Shards, Rules{})
	if err != nil || plain.ID != s.ID {
		t.Errorf("%v, %v", plain, err)
	}
}
