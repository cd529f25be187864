package parquetfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

// TestGoldenBytes compares rows and sizes of row groups with numbers that were
// worked out in Python once. They decide where blocks begin and never change.
func TestGoldenBytes(t *testing.T) {
	b, err := os.ReadFile("testdata/golden/bytes.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string][][2]int64
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	for name, want := range golden {
		path := name + ".parquet"
		sh := describe(t, store(t, "testdata/golden", path))
		if len(sh.Segments) != len(want) {
			t.Fatalf("%s: %d segments, want %d", name, len(sh.Segments), len(want))
		}
		for i, seg := range sh.Segments {
			if got := [2]int64{seg.Rows, seg.Bytes}; got != want[i] {
				t.Errorf("%s segment %d: %v rows and bytes, want %v", name, i, got, want[i])
			}
		}
		file, err := os.ReadFile(filepath.Join("testdata/golden", path))
		if err != nil {
			t.Fatal(err)
		}
		end := len(file) - trailer
		length := int(binary.LittleEndian.Uint32(file[end:]))
		if sh.Meta != sha256.Sum256(file[end-length:end]) {
			t.Errorf("%s: Meta is not the footer's SHA-256", name)
		}
		if sh.Key != path || sh.Size != int64(len(file)) || sh.Format != snapshot.Parquet || sh.Pin == "" {
			t.Errorf("%s: %+v", name, sh)
		}
	}
}

// TestSchemaSameAsPyarrow compares names, types, nullability and metadata with
// what pyarrow makes of the same file.
func TestSchemaSameAsPyarrow(t *testing.T) {
	for _, name := range names(t, "flat", "nested_v1", "fixed_lists_v1", "metadata", "zero", "int96", "decimal") {
		sh := describe(t, store(t, folder(t), name+".parquet"))
		want, _ := expected(t, folder(t), name)
		if got, want := sh.Schema.Metadata(), want.Metadata(); !got.Equal(want) {
			t.Errorf("%s: metadata %s, want %s", name, got, want)
		}
		for i, f := range sh.Schema.Fields() {
			sameField(t, name, f, want.Field(i))
		}
		if !schema.Plain(sh.Schema).Equal(sh.Schema) {
			t.Errorf("%s: the schema is not plain", name)
		}
	}
}

func sameField(t *testing.T, at string, got, want arrow.Field) {
	t.Helper()
	at += "." + got.Name
	if !sameLayout(got.Type, want.Type) || got.Nullable != want.Nullable {
		t.Errorf("%s: %v, want %v", at, got, want)
		return
	}
	ext, _ := got.Metadata.GetValue(ipc.ExtensionTypeKeyName)
	wantExt, ok := want.Metadata.GetValue("test:extension:name")
	if ok && ext != wantExt {
		t.Errorf("%s: extension %q, want %q", at, ext, wantExt)
	}
	for i, k := range want.Metadata.Keys() {
		if v, _ := got.Metadata.GetValue(k); k != "test:extension:name" && v != want.Metadata.Values()[i] {
			t.Errorf("%s: metadata %s = %q, want %q", at, k, v, want.Metadata.Values()[i])
		}
	}
	below := children(want.Type)
	for i, kid := range children(got.Type) {
		if kid.Name != below[i].Name && !ok { // pyarrow invents the names inside its extensions
			t.Errorf("%s: child %q, want %q", at, kid.Name, below[i].Name)
		}
		sameField(t, at, kid, below[i])
	}
}

// TestExtensionParameters keeps them byte for byte, known to us or not.
func TestExtensionParameters(t *testing.T) {
	sh := describe(t, store(t, folder(t), "fixed_lists_v1.parquet"))
	f, _ := sh.Schema.FieldsByName("tensor")
	name, _ := f[0].Metadata.GetValue(ipc.ExtensionTypeKeyName)
	params, _ := f[0].Metadata.GetValue(ipc.ExtensionMetadataKeyName)
	if name != "arrow.fixed_shape_tensor" || params != `{"shape":[2,2]}` || f[0].Type.ID() != arrow.FIXED_SIZE_LIST {
		t.Errorf("%v: %s %s", f[0], name, params)
	}
}

// put writes a file of the given bytes and opens it.
func put(t testing.TB, b []byte) *bucket.Object {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file.parquet"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return store(t, dir, "file.parquet")
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withFooter replaces the footer of a file, the length behind it included.
func withFooter(file []byte, edit func(footer []byte) []byte) []byte {
	end := len(file) - trailer
	at := end - int(binary.LittleEndian.Uint32(file[end:]))
	footer := edit(bytes.Clone(file[at:end]))
	out := append(bytes.Clone(file[:at]), footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, "PAR1"...)
}

func TestDescribeRefuses(t *testing.T) {
	good := golden(t, "plain.parquet")
	length := func(n uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[len(b)-8:], n)
		return b
	}
	for name, tt := range map[string]struct {
		file []byte
		want string
		err  error
	}{
		"empty":             {nil, "0 bytes are too few", snapshot.ErrCorrupt},
		"magic only":        {[]byte("PAR1"), "4 bytes are too few", snapshot.ErrCorrupt},
		"two magics":        {[]byte("PAR1\x00\x00\x00\x00PAR1"), "footer length 0", snapshot.ErrCorrupt},
		"garbage":           {bytes.Repeat([]byte("garbage "), 1000), "does not end in PAR1", snapshot.ErrCorrupt},
		"half":              {good[:len(good)/2], "cut short", snapshot.ErrCorrupt},
		"without last byte": {good[:len(good)-1], "cut short", snapshot.ErrCorrupt},
		"long footer":       {length(uint32(len(good))), "footer length", snapshot.ErrCorrupt},
		"endless footer":    {length(1<<32 - 1), "footer length", snapshot.ErrCorrupt},
		"short footer":      {length(100), "footer: ", snapshot.ErrCorrupt},
		"zeroed footer":     {withFooter(good, func(f []byte) []byte { return make([]byte, len(f)) }), "footer: ", snapshot.ErrCorrupt},
		"encrypted":         {append(bytes.Clone(good[:len(good)-4]), "PARE"...), "the footer is encrypted", snapshot.ErrUnsupported},
		"front cut off":     {good[20_000:], "pages at ", snapshot.ErrCorrupt},
	} {
		obj := put(t, tt.file)
		_, err := Describe(t.Context(), obj)
		if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `"file.parquet"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEncrypted(t *testing.T) {
	for name, want := range map[string]string{"footer.encrypted": "the footer is encrypted", "columns.encrypted": "columns are encrypted"} {
		_, err := Describe(t.Context(), store(t, folder(t), name))
		if !errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestB14 raises the footer's row counts over what the columns have.
func TestB14_RowCounts(t *testing.T) {
	good := golden(t, "plain.parquet")
	zigzag := func(n uint64) []byte { return binary.AppendUvarint(nil, n<<1) }
	// The counts are two bytes each here, so they can be overwritten in place.
	for _, n := range []uint64{3000, 2000, 5000} {
		changed := withFooter(good, func(f []byte) []byte {
			return bytes.Replace(f, zigzag(n), zigzag(n+1), 1)
		})
		if bytes.Equal(changed, good) {
			t.Fatalf("the footer has no count %d", n)
		}
		_, err := Describe(t.Context(), put(t, changed))
		if !errors.Is(err, snapshot.ErrCorrupt) {
			t.Fatalf("%d rows more: %v", n, err)
		}
		for _, want := range []string{`"file.parquet"`, "num_", fmt.Sprint(n), fmt.Sprint(n + 1)} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not name %s: %v", want, err)
			}
		}
	}
}

// TestDamaged flips bytes all over a file: every outcome is rows or an error
// of a class, never a panic.
func TestDamaged(t *testing.T) {
	for _, name := range []string{"plain.parquet", "dictionaries.parquet"} {
		good := golden(t, name)
		r := rand.New(rand.NewPCG(1, 2))
		for range 150 {
			b := bytes.Clone(good)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(b))
				if r.IntN(2) == 0 {
					at = len(b) - 1 - r.IntN(min(len(b), 2500)) // the footer
				}
				b[at] = byte(r.Uint32())
			}
			tryAll(t, put(t, b))
		}
		for range 20 {
			tryAll(t, put(t, good[:r.IntN(len(good))]))
		}
	}
}

// tryAll reads what can be read of a file.
func tryAll(t testing.TB, obj *bucket.Object) {
	t.Helper()
	check := func(err error) {
		if err != nil && !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrUnsupported) && !errors.Is(err, budget.ErrExhausted) {
			t.Errorf("an error of no class: %v", err)
		}
	}
	sh, err := Describe(t.Context(), obj)
	if check(err); err != nil || schema.Check(sh.Schema) != nil {
		return
	}
	w := newWorld(t, 256<<20)
	for i := range sh.Segments {
		s, err := (Options{}).Open(t.Context(), obj, sh, i, schema.All(sh.Schema), w.pool, w.grant)
		if check(err); err != nil {
			return
		}
		leases, err := s.Next(t.Context(), nil, min(sh.Segments[i].Rows, 100_000))
		check(err)
		for _, l := range leases {
			l.Release()
		}
		s.Close()
	}
}

func TestDescribeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Describe(ctx, store(t, "testdata/golden", "plain.parquet")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
