package schema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// ErrNotation means a text that names no type.
var ErrNotation = errors.New("no type")

// maxDepth bounds how deep a type in words may nest.
const maxDepth = 32

// ParseField reads a column's type as pyarrow writes it: "int64", "string",
// "timestamp[us, tz=UTC]", "list<item: float>", "fixed_size_list<item: float>[8]",
// "struct<a: int8, b: string not null>", "map<string, int64>"; names of list
// items may be left out. "not null" at the end says that it has no nulls.
// ErrNotation tells where it went wrong.
func ParseField(name, text string) (arrow.Field, error) {
	n := notation{text: text}
	f, err := n.field(name, 0)
	if err == nil && n.peek() != 0 {
		err = n.wrong("the end was expected")
	}
	return f, err
}

// notation reads a type from left to right.
type notation struct {
	text string
	at   int
}

func (n *notation) wrong(why string) error {
	return fmt.Errorf("%w: %q, at %q: %s", ErrNotation, n.text, n.text[n.at:], why)
}

// peek returns the next character that is no space; 0 at the end.
func (n *notation) peek() byte {
	for n.at < len(n.text) && n.text[n.at] == ' ' {
		n.at++
	}
	if n.at == len(n.text) {
		return 0
	}
	return n.text[n.at]
}

// take passes over a character; false if another one comes.
func (n *notation) take(c byte) bool {
	if n.peek() != c {
		return false
	}
	n.at++
	return true
}

func (n *notation) must(c byte) error {
	if !n.take(c) {
		return n.wrong(fmt.Sprintf("%q was expected", c))
	}
	return nil
}

// word takes everything up to one of the characters that mean something.
func (n *notation) word() string {
	n.peek()
	rest := n.text[n.at:]
	end := strings.IndexAny(rest, "<>[](),:")
	if end < 0 {
		end = len(rest)
	}
	n.at += end
	return strings.TrimSpace(rest[:end])
}

// field reads a type and whether it may be null.
func (n *notation) field(name string, depth int) (arrow.Field, error) {
	f := arrow.Field{Name: name, Nullable: true}
	if depth > maxDepth {
		return f, n.wrong("it nests too deep")
	}
	word := n.word()
	if short, ok := strings.CutSuffix(word, " not null"); ok {
		word, f.Nullable = strings.TrimSpace(short), false
	}
	var err error
	if f.Type, err = n.typed(word, depth); err != nil {
		return f, err
	}
	if rest := n.text[n.at:]; strings.HasPrefix(strings.TrimLeft(rest, " "), "not null") {
		n.at = len(n.text) - len(strings.TrimPrefix(strings.TrimLeft(rest, " "), "not null"))
		f.Nullable = false
	}
	return f, nil
}

// plainNames are the types that a word says all of.
var plainNames = map[string]arrow.DataType{
	"null": arrow.Null, "bool": arrow.FixedWidthTypes.Boolean,
	"int8": arrow.PrimitiveTypes.Int8, "int16": arrow.PrimitiveTypes.Int16, "int32": arrow.PrimitiveTypes.Int32, "int64": arrow.PrimitiveTypes.Int64,
	"uint8": arrow.PrimitiveTypes.Uint8, "uint16": arrow.PrimitiveTypes.Uint16, "uint32": arrow.PrimitiveTypes.Uint32, "uint64": arrow.PrimitiveTypes.Uint64,
	"halffloat": arrow.FixedWidthTypes.Float16, "float16": arrow.FixedWidthTypes.Float16,
	"float": arrow.PrimitiveTypes.Float32, "float32": arrow.PrimitiveTypes.Float32,
	"double": arrow.PrimitiveTypes.Float64, "float64": arrow.PrimitiveTypes.Float64,
	"string": arrow.BinaryTypes.String, "utf8": arrow.BinaryTypes.String, "large_string": arrow.BinaryTypes.LargeString, "large_utf8": arrow.BinaryTypes.LargeString,
	"binary": arrow.BinaryTypes.Binary, "large_binary": arrow.BinaryTypes.LargeBinary,
	"date32": arrow.FixedWidthTypes.Date32, "date64": arrow.FixedWidthTypes.Date64,
}

func (n *notation) typed(word string, depth int) (arrow.DataType, error) {
	if t := plainNames[word]; t != nil {
		return t, n.unit(t)
	}
	switch word {
	case "time32", "time64", "timestamp", "duration":
		return n.time(word)
	case "decimal128", "decimal256":
		return n.decimal(word)
	case "fixed_size_binary":
		size, err := n.size()
		return &arrow.FixedSizeBinaryType{ByteWidth: size}, err
	case "list", "large_list", "fixed_size_list", "struct", "map":
		return n.nested(word, depth)
	}
	return nil, n.wrong(fmt.Sprintf("%q is no type that is known here", word))
}

// unit passes over what pyarrow writes behind dates: "date32[day]".
func (n *notation) unit(t arrow.DataType) error {
	words := map[arrow.Type]string{arrow.DATE32: "day", arrow.DATE64: "ms"}
	want := words[t.ID()]
	if want == "" || !n.take('[') {
		return nil
	}
	if n.word() != want {
		return n.wrong(fmt.Sprintf("%q was expected", want))
	}
	return n.must(']')
}

var timeUnits = map[string]arrow.TimeUnit{"s": arrow.Second, "ms": arrow.Millisecond, "us": arrow.Microsecond, "ns": arrow.Nanosecond}

func (n *notation) time(word string) (arrow.DataType, error) {
	if err := n.must('['); err != nil {
		return nil, err
	}
	unit, ok := timeUnits[n.word()]
	if !ok {
		return nil, n.wrong("a unit was expected: s, ms, us or ns")
	}
	var zone string
	if word == "timestamp" && n.take(',') {
		rest, _, _ := strings.Cut(n.text[n.at:], "]")
		n.at += len(rest)
		if zone, ok = strings.CutPrefix(strings.TrimSpace(rest), "tz="); !ok {
			return nil, n.wrong("a time zone was expected, as in tz=UTC")
		}
	}
	coarse := unit == arrow.Second || unit == arrow.Millisecond
	var t arrow.DataType
	switch {
	case word == "timestamp":
		t = &arrow.TimestampType{Unit: unit, TimeZone: zone}
	case word == "duration":
		t = &arrow.DurationType{Unit: unit}
	case word == "time32" && coarse:
		t = &arrow.Time32Type{Unit: unit}
	case word == "time64" && !coarse:
		t = &arrow.Time64Type{Unit: unit}
	default:
		return nil, n.wrong("time32 has s or ms, time64 us or ns")
	}
	return t, n.must(']')
}

func (n *notation) decimal(word string) (arrow.DataType, error) {
	if err := n.must('('); err != nil {
		return nil, err
	}
	precision, err := n.number()
	if err != nil {
		return nil, err
	}
	if err := n.must(','); err != nil {
		return nil, err
	}
	scale, err := n.number()
	if err != nil {
		return nil, err
	}
	id, most := arrow.DECIMAL128, 38
	if word == "decimal256" {
		id, most = arrow.DECIMAL256, 76
	}
	if precision < 1 || precision > most || scale < -most || scale > most {
		return nil, n.wrong(fmt.Sprintf("a precision from 1 to %d was expected, and a scale within it", most))
	}
	t, err := arrow.NewDecimalType(id, int32(precision), int32(scale))
	if err != nil {
		return nil, n.wrong(err.Error())
	}
	return t, n.must(')')
}

func (n *notation) number() (int, error) {
	v, err := strconv.ParseInt(n.word(), 10, 32)
	if err != nil {
		return 0, n.wrong("a number was expected")
	}
	return int(v), nil
}

// size reads a length in brackets.
func (n *notation) size() (int, error) {
	if err := n.must('['); err != nil {
		return 0, err
	}
	size, err := n.number()
	if err != nil {
		return 0, err
	}
	if size < 1 {
		return 0, n.wrong("a length of 1 or more was expected")
	}
	return size, n.must(']')
}

func (n *notation) nested(word string, depth int) (arrow.DataType, error) {
	fields, err := n.children(word, depth+1)
	switch {
	case err != nil:
		return nil, err
	case word == "struct":
		return arrow.StructOf(fields...), Check(arrow.NewSchema(fields, nil))
	case word == "map" && len(fields) == 2:
		fields[0].Nullable = false
		return arrow.MapOfFields(fields[0], fields[1]), nil
	case word == "map" || len(fields) != 1:
		return nil, n.wrong("a map has two types, a list one")
	case word == "list":
		return arrow.ListOfField(fields[0]), nil
	case word == "large_list":
		return arrow.LargeListOfField(fields[0]), nil
	}
	size, err := n.size()
	if err != nil {
		return nil, err
	}
	return arrow.FixedSizeListOfField(int32(size), fields[0]), nil
}

// children reads the fields between angle brackets.
func (n *notation) children(word string, depth int) (fields []arrow.Field, err error) {
	if err := n.must('<'); err != nil {
		return nil, err
	}
	names := map[string][]string{"map": {"key", "value"}}[word]
	for {
		name := "item"
		if len(fields) < len(names) {
			name = names[len(fields)]
		}
		start := n.at
		if first := n.word(); n.take(':') {
			name = first
		} else if n.at = start; word == "struct" {
			return nil, n.wrong("a name was expected, as in struct<a: int8>")
		}
		f, err := n.field(name, depth)
		if err != nil {
			return nil, err
		}
		if fields = append(fields, f); !n.take(',') {
			return fields, n.must('>')
		}
	}
}
