package e2e

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/gateway/client"
)

// The files for tests between implementations of Arrow come with their values in JSON. They are read by the Go client
// here, since pyarrow does not know all their types.

// withValues tells whether a file is one of those.
func withValues(f public) bool { return strings.HasPrefix(f.name, "arrow-integration/") }

// readIntegration reads the files that come with their values and returns how each ended.
func readIntegration(t *testing.T, s *server, files []public) string {
	t.Helper()
	c, err := client.Dial(s.uri, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var out strings.Builder
	for _, f := range files {
		if withValues(f) {
			fmt.Fprintf(&out, "%s\t%s\n", f.name, integrationOutcome(t, c, f))
		}
	}
	return out.String()
}

// Words of refusals that are right although there are values to compare with, and why.
var integrationRefusals = map[string]string{
	"big-endian":     "no machine that trains writes them so",
	"duplicate name": "columns are asked for by name",
}

func integrationOutcome(t *testing.T, c *client.Client, f public) string {
	t.Helper()
	rows, err := servedTexts(t.Context(), c, f.dataset)
	if err != nil {
		_, cause, _ := strings.Cut(strings.ReplaceAll(err.Error(), filepath.Base(f.path), "FILE"), "code = ")
		cause = strings.ReplaceAll(cause, strconv.Quote(f.dataset), "DATASET")
		if !strings.Contains(cause, "FILE") {
			cause += " UNEXPLAINED: the file is not named"
		}
		for words, reason := range integrationRefusals {
			if strings.Contains(cause, words) {
				return fmt.Sprintf("refused, %s; allowed: %s", cause, reason)
			}
		}
		return fmt.Sprintf("refused, %s; UNEXPLAINED: its values are known", cause)
	}
	from := filepath.Join(os.Getenv("HEADRACE_CORPORA"), filepath.FromSlash(f.name))
	want, err := writtenTexts(strings.TrimSuffix(strings.TrimSuffix(from, ".stream"), ".arrow_file") + ".json.gz")
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	if len(rows) != len(want) {
		return fmt.Sprintf("UNEXPLAINED: %d rows, its JSON has %d", len(rows), len(want))
	}
	for i := range rows {
		if rows[i] != want[i] {
			return fmt.Sprintf("UNEXPLAINED: row %d is %.300s, in its JSON %.300s", i, rows[i], want[i])
		}
	}
	return fmt.Sprintf("%d rows; its JSON the same", len(rows))
}

// servedTexts reads a dataset and returns each row as text.
func servedTexts(ctx context.Context, c *client.Client, dataset string) (rows []string, err error) {
	stream, err := c.Stream(ctx, fmt.Appendf(nil, `{"dataset": %q}`, dataset))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for {
		b, _, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range int(b.NumRows()) {
			var row strings.Builder
			for n, col := range b.Columns() {
				fmt.Fprintf(&row, "%s=%s ", b.ColumnName(n), arrayText(col, i))
			}
			rows = append(rows, row.String())
		}
	}
}

// arrayText is the value at row i as text, the same that jsonText makes of it.
func arrayText(arr arrow.Array, i int) string {
	if arr.IsNull(i) || arr.DataType().ID() == arrow.NULL {
		return "null"
	}
	switch a := arr.(type) {
	case array.Union:
		child := a.Field(a.ChildID(i))
		if d, ok := a.(*array.DenseUnion); ok {
			return fmt.Sprintf("%d:%s", a.TypeCode(i), arrayText(child, int(d.ValueOffset(i))))
		}
		return fmt.Sprintf("%d:%s", a.TypeCode(i), arrayText(child, i))
	case *array.Struct:
		return structText(a.NumField(), func(n int) string { return arrayText(a.Field(n), i) })
	case array.ListLike: // maps too
		from, to := a.ValueOffsets(i)
		return listText(from, to, func(n int) string { return arrayText(a.ListValues(), n) })
	case *array.Decimal128:
		return a.Value(i).BigInt().String()
	case *array.Decimal256:
		return a.Value(i).BigInt().String()
	case *array.DayTimeInterval:
		return fmt.Sprintf("%d days %d ms", a.Value(i).Days, a.Value(i).Milliseconds)
	case *array.Binary:
		return fmt.Sprintf("%X", a.Value(i))
	case *array.LargeBinary:
		return fmt.Sprintf("%X", a.Value(i))
	case *array.FixedSizeBinary:
		return fmt.Sprintf("%X", a.Value(i))
	case *array.String:
		return strconv.Quote(a.Value(i))
	case *array.LargeString:
		return strconv.Quote(a.Value(i))
	}
	return numberText(arr, i)
}

// numberText is a value that is a number below its type.
func numberText(arr arrow.Array, i int) string {
	switch a := arr.(type) {
	case *array.Boolean:
		return strconv.FormatBool(a.Value(i))
	case *array.Float32:
		return strconv.FormatFloat(float64(a.Value(i)), 'g', -1, 32)
	case *array.Float64:
		return strconv.FormatFloat(a.Value(i), 'g', -1, 64)
	case *array.Int8:
		return fmt.Sprint(a.Value(i))
	case *array.Int16:
		return fmt.Sprint(a.Value(i))
	case *array.Int32:
		return fmt.Sprint(a.Value(i))
	case *array.Int64:
		return fmt.Sprint(a.Value(i))
	case *array.Uint8:
		return fmt.Sprint(a.Value(i))
	case *array.Uint16:
		return fmt.Sprint(a.Value(i))
	case *array.Uint32:
		return fmt.Sprint(a.Value(i))
	case *array.Uint64:
		return fmt.Sprint(a.Value(i))
	case *array.Date32:
		return fmt.Sprint(int32(a.Value(i)))
	case *array.Date64:
		return fmt.Sprint(int64(a.Value(i)))
	case *array.Time32:
		return fmt.Sprint(int32(a.Value(i)))
	case *array.Time64:
		return fmt.Sprint(int64(a.Value(i)))
	case *array.Timestamp:
		return fmt.Sprint(int64(a.Value(i)))
	case *array.Duration:
		return fmt.Sprint(int64(a.Value(i)))
	case *array.MonthInterval:
		return fmt.Sprint(int32(a.Value(i)))
	}
	return "no text for " + arr.DataType().String()
}

func structText(fields int, text func(i int) string) string {
	parts := make([]string, fields)
	for i := range parts {
		parts[i] = text(i)
	}
	return "{" + strings.Join(parts, " ") + "}"
}

func listText(from, to int64, text func(i int) string) string {
	var parts []string
	for i := from; i < to; i++ {
		parts = append(parts, text(int(i)))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// jsonFile is the part of an integration file's JSON that says its values.
type jsonFile struct {
	Schema       struct{ Fields []jsonField }
	Dictionaries []struct {
		ID   int64
		Data jsonBatch
	}
	Batches []jsonBatch
}

type jsonBatch struct {
	Count   int
	Columns []jsonColumn
}

type jsonField struct {
	Name string
	Type struct {
		Name      string
		Unit      string
		Mode      string
		Precision json.RawMessage
		ListSize  int
		TypeIDs   []int
	}
	Children   []jsonField
	Dictionary *struct{ ID int64 }
}

type jsonColumn struct {
	Validity []int             `json:"VALIDITY"`
	Offset   []json.RawMessage `json:"OFFSET"` // numbers, or texts of them
	Data     []json.RawMessage `json:"DATA"`
	TypeID   []int             `json:"TYPE_ID"`
	Children []jsonColumn
}

// writtenTexts returns the rows of a JSON file as text.
func writtenTexts(path string) (rows []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var file jsonFile
	if err := json.NewDecoder(z).Decode(&file); err != nil {
		return nil, err
	}
	for _, b := range file.Batches {
		for i := range b.Count {
			var row strings.Builder
			for n, field := range file.Schema.Fields {
				fmt.Fprintf(&row, "%s=%s ", field.Name, file.text(field, b.Columns[n], i))
			}
			rows = append(rows, row.String())
		}
	}
	return rows, nil
}

// text is the value of a column at row i.
func (file *jsonFile) text(f jsonField, c jsonColumn, i int) string {
	if f.Type.Name == "null" || len(c.Validity) > 0 && f.Type.Name != "union" && c.Validity[i] == 0 {
		return "null"
	}
	if f.Dictionary != nil {
		for _, d := range file.Dictionaries {
			if d.ID == f.Dictionary.ID {
				plain := f
				plain.Dictionary = nil
				return file.text(plain, d.Data.Columns[0], int(number(c.Data[i])))
			}
		}
	}
	child := func(n, i int) string { return file.text(f.Children[n], c.Children[n], i) }
	switch f.Type.Name {
	case "struct":
		return structText(len(f.Children), func(n int) string { return child(n, i) })
	case "list", "largelist", "map":
		return listText(number(c.Offset[i]), number(c.Offset[i+1]), func(at int) string { return child(0, at) })
	case "fixedsizelist":
		from := int64(i * f.Type.ListSize)
		return listText(from, from+int64(f.Type.ListSize), func(at int) string { return child(0, at) })
	case "union":
		at := i
		if f.Type.Mode == "DENSE" {
			at = int(number(c.Offset[i]))
		}
		for n, id := range f.Type.TypeIDs {
			if id == c.TypeID[i] {
				return fmt.Sprintf("%d:%s", id, child(n, at))
			}
		}
	}
	return scalarText(f, c.Data[i])
}

// number reads a number, which may be written as text.
func number(raw json.RawMessage) int64 {
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func scalarText(f jsonField, raw json.RawMessage) string {
	switch f.Type.Name {
	case "bool":
		return strconv.FormatBool(string(raw) == "1" || string(raw) == "true")
	case "utf8", "largeutf8":
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			panic(err)
		}
		return strconv.Quote(s)
	case "floatingpoint":
		bits := 64
		if string(f.Type.Precision) == `"SINGLE"` {
			bits = 32
		}
		v, err := strconv.ParseFloat(string(raw), bits)
		if err != nil {
			panic(err)
		}
		return strconv.FormatFloat(v, 'g', -1, bits)
	case "interval":
		var v struct{ Days, Milliseconds int }
		if json.Unmarshal(raw, &v) == nil {
			return fmt.Sprintf("%d days %d ms", v.Days, v.Milliseconds)
		}
	}
	return strings.ToUpper(strings.Trim(string(raw), `"`))
}
