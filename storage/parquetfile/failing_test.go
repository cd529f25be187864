package parquetfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// These files are made like public ones that readers take for something else, or die of. TestCorpora reads the public
// ones themselves where they are at hand.

// failing opens a file that write.py made for this, its footer changed.
func failing(t *testing.T, name string, edit func(footer []byte) []byte) *bucket.Object {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder(t), name))
	if err != nil {
		t.Fatal(err)
	}
	changed := withFooter(b, edit)
	if bytes.Equal(changed, b) {
		t.Fatalf("the footer of %s is not as the test expects it", name)
	}
	return put(t, changed)
}

// refuses tells whether an error is of a class and has all of some words in it.
func refuses(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("not %v: %v", class, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %s: %v", w, err)
		}
	}
}

// TestTextThatIsNoUTF8 has one bad value in every encoding of byte arrays: it is found where it is read, and named.
// The other column and the rows before it never notice. As in invalid_utf8_dba, _dlba and _dictionary.
func TestTextThatIsNoUTF8(t *testing.T) {
	for _, encoding := range []string{"plain", "dictionary", "dlba", "dba"} {
		name := "utf8_" + encoding + ".bad"
		obj := store(t, folder(t), name)
		sh := describe(t, obj)
		w := newWorld(t, 1<<30)
		_, err := w.read(t, obj, sh, 0, schema.All(sh.Schema), 0, 1000)
		refuses(t, err, snapshot.ErrCorrupt, name, "row group 0", `"text"`, "row 4321")
		ids, err := schema.Project(sh.Schema, [][]string{{"id"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.readFile(t, obj, sh, ids, 1000)[0]; got.Len() != 5000 || got.NullN() > 0 {
			t.Errorf("%s: %d rows of the other column", name, got.Len())
		}
		s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
		if err != nil {
			t.Fatal(err)
		}
		leases, err := s.Next(t.Context(), nil, 4321)
		if err != nil {
			t.Errorf("%s: rows before the bad one: %v", name, err)
		}
		for _, l := range leases {
			l.Release()
		}
		s.Close()
	}
}

// TestINT96OutsideOfNanoseconds has a timestamp of the year 3065, as int96_from_spark and bug4903 have.
func TestINT96OutsideOfNanoseconds(t *testing.T) {
	obj := store(t, folder(t), "int96.bad")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	_, err := w.read(t, obj, sh, 0, schema.All(sh.Schema), 0, 0)
	refuses(t, err, snapshot.ErrUnsupported, "int96.bad", "row group 0", `"when"`, "row 2", "INT96", "nanoseconds")
}

// TestMapKeysThatMayBeNull has a map whose keys are optional, as incorrect_map_schema has: Arrow has no such maps.
func TestMapKeysThatMayBeNull(t *testing.T) {
	obj := failing(t, "digits.bad", func(f []byte) []byte {
		return bytes.Replace(f, []byte("\x25\x00\x18\x03key"), []byte("\x25\x02\x18\x03key"), 1)
	})
	_, err := Describe(t.Context(), obj)
	refuses(t, err, snapshot.ErrUnsupported, "file.parquet", `column "m"`, "MAP keys must be required")
}

// TestDecimalsWithoutDigits has a decimal of no bytes, as byte_array_decimal_empty_value has: that is zero.
func TestDecimalsWithoutDigits(t *testing.T) {
	const column = "\x15\x0c\x25\x02\x18\x01d"              // BYTE_ARRAY, optional, "d"
	const decimal = "\x25\x0a\x15\x04\x15\x14"              // DECIMAL, scale 2, precision 10
	obj := failing(t, "digits.bad", func(f []byte) []byte { // the name is field 4, the last
		return bytes.Replace(f, []byte(column), []byte(column+decimal), 1)
	})
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	got, ok := w.readFile(t, obj, sh, schema.All(sh.Schema), 0)[0].(*array.Decimal128)
	if !ok || got.Len() != 4 {
		t.Fatalf("%s", sh.Schema)
	}
	for i, want := range []string{"0", "2.56", array.NullValueStr, "-0.01"} {
		if is := got.ValueStr(i); is != want {
			t.Errorf("row %d: %s, want %s", i, is, want)
		}
	}
}
