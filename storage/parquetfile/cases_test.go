package parquetfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// sameAsPyarrow reads test files that begin with one of the names, in batches of
// the given sizes, and compares them with what pyarrow reads.
func sameAsPyarrow(t *testing.T, sizes []int64, prefixes ...string) {
	t.Helper()
	for _, name := range names(t, prefixes...) {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		s, want := expected(t, folder(t), name)
		for _, n := range sizes {
			same(t, s, w.readFile(t, obj, sh, schema.All(sh.Schema), n), want, 0)
		}
	}
}

// TestB12 reads dictionary columns in which whole pages have no index.
func TestB12_PagesWithoutIndices(t *testing.T) { sameAsPyarrow(t, []int64{0, 7, 1500}, "holes_") }

// TestB13 reads dictionaries of one value, whose indices have no bits.
func TestB13_IndicesOfNoBits(t *testing.T) { sameAsPyarrow(t, []int64{0, 7, 999}, "constant_") }

// TestB16 reads pages of version 2 in which nothing but nulls is compressed to nothing.
func TestB16_EmptyPages(t *testing.T) {
	sameAsPyarrow(t, []int64{0, 7}, "flat_v2_nulls", "nested_v2_nulls")
	dir := filepath.Join(corpora(t), "parquet-testing", "data")
	for _, name := range []string{"datapage_v2_empty_datapage.snappy.parquet", "page_v2_empty_compressed.parquet"} {
		obj := store(t, dir, name)
		sh := describe(t, obj)
		w := newWorld(t, 1<<30)
		for _, a := range w.readFile(t, obj, sh, schema.All(sh.Schema), 0) {
			if a.Len() == 0 || a.NullN() != a.Len() {
				t.Errorf("%s: %d nulls in %d rows", name, a.NullN(), a.Len())
			}
		}
	}
}

// TestB17 gives a column a logical type that nobody knows yet: it is served as it
// is stored, and the other columns never notice.
func TestB17_UnknownLogicalType(t *testing.T) {
	good := golden(t, "plain.parquet")
	isString, unknown := []byte{0x4c, 0x1c, 0, 0}, []byte{0x4c, 0x0c, 0xc6, 0x01, 0, 0} // type 1 of the union; 99
	changed := withFooter(good, func(f []byte) []byte { return bytes.Replace(f, isString, unknown, 1) })
	if bytes.Equal(changed, good) {
		t.Fatal("the file has no column of strings")
	}
	was, is := put(t, good), put(t, changed)
	before, after := describe(t, was), describe(t, is)
	w := newWorld(t, 1<<30)
	want := w.readFile(t, was, before, schema.All(before.Schema), 0)
	got := w.readFile(t, is, after, schema.All(after.Schema), 0)
	for i := range want {
		if array.Equal(want[i], got[i]) {
			alone, err := schema.Project(after.Schema, [][]string{{after.Schema.Field(i).Name}})
			if err != nil {
				t.Fatal(err)
			}
			if a := w.readFile(t, is, after, alone, 0); !array.Equal(want[i], a[0]) {
				t.Errorf("%s alone differs", after.Schema.Field(i).Name)
			}
			continue
		}
		// Only the type may differ, where nothing else says that these are strings.
		if got[i].DataType().ID() != arrow.BINARY || want[i].DataType().ID() != arrow.STRING || got[i].Len() != want[i].Len() {
			t.Errorf("%s: %s, was %s", after.Schema.Field(i).Name, got[i].DataType(), want[i].DataType())
		}
	}
}

// damagedObject is an object some bytes of which come out wrong, so many times.
type damagedObject struct {
	*bucket.Object
	at    int64
	times atomic.Int32
}

func (d *damagedObject) ReaderAt(ctx context.Context) io.ReaderAt {
	return damagedReader{d, d.Object.ReaderAt(ctx)}
}

type damagedReader struct {
	d *damagedObject
	r io.ReaderAt
}

func (r damagedReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.r.ReadAt(p, off)
	if at := r.d.at - off; at >= 0 && at < int64(n) && r.d.times.Add(-1) >= 0 {
		p[at] ^= 1
	}
	return n, err
}

// TestChecksums damages pages with checksums, of a dictionary and of data, whoever decodes them: a wrong byte that goes
// away when it is read again does no harm, one that stays is an error that says where.
func TestChecksums(t *testing.T) {
	for _, name := range []string{"checksums_v1.parquet", "checksums_v2.parquet"} {
		for column, leaf := range map[string]int{"s": 1, "d": 3} { // the second is arrow-go's: lists of lists
			obj := store(t, folder(t), name)
			sh := describe(t, obj)
			p, err := schema.Project(sh.Schema, [][]string{{column}})
			if err != nil {
				t.Fatal(err)
			}
			chunk := chunkOf(t, obj, sh, leaf)
			for _, at := range bodies(t, obj, chunk) {
				for times, good := range map[int32]bool{1: true, 1 << 30: false} {
					err := readDamaged(t, obj, sh, p, at, times)
					if good != (err == nil) {
						t.Errorf("%s: %s: byte %d, wrong %d times: %v", name, column, at, times, err)
					}
					if err != nil && (!errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), name) ||
						!strings.Contains(err.Error(), `row group 0, column "`+column) || !strings.Contains(err.Error(), ": page ") || !strings.Contains(err.Error(), "CRC-32")) {
						t.Errorf("the error does not say where: %v", err)
					}
				}
			}
		}
	}
}

// chunkOf is what the footer says of a leaf column of the first row group.
func chunkOf(t *testing.T, obj *bucket.Object, sh *snapshot.Shard, leaf int) chunk {
	t.Helper()
	f, err := reopen(t.Context(), obj, sh)
	if err != nil {
		t.Fatal(err)
	}
	return f.chunk(0, leaf)
}

// bodies lists where the first two pages of a chunk and its last one have the first and the last byte of their bodies.
func bodies(t *testing.T, obj *bucket.Object, c chunk) (all []int64) {
	t.Helper()
	for at := c.start; at < c.end; {
		p, err := readPage(obj.ReaderAt(t.Context()), at, c.end)
		if err != nil {
			t.Fatal(err)
		}
		if !p.checked || p.size == 0 {
			t.Fatalf("the page at %d has no checksum, or is empty", at)
		}
		all = append(all, at+p.header, at+p.header+p.size-1)
		at += p.header + p.size
	}
	if len(all) < 6 {
		t.Fatalf("%d pages", len(all)/2)
	}
	return append(all[:4], all[len(all)-2:]...)
}

// readDamaged reads a column one byte of which is wrong so many times, after the file was opened.
func readDamaged(t *testing.T, obj *bucket.Object, sh *snapshot.Shard, p *schema.Projection, at int64, times int32) error {
	t.Helper()
	w := newWorld(t, 1<<30)
	s, err := (Options{}).Open(t.Context(), obj, sh, 0, p, w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	damaged := &damagedObject{Object: obj, at: at}
	damaged.times.Store(times)
	s.source.obj, s.source.store = damaged, damaged
	leases, err := s.Next(t.Context(), nil, 3000)
	for _, l := range leases {
		l.Release()
	}
	if damaged.times.Load() == times {
		t.Errorf("byte %d was never read", at)
	}
	return err
}

// TestReadersAreCounted tells which columns go to arrow-go: lists of lists, no others.
func TestReadersAreCounted(t *testing.T) {
	obj := store(t, folder(t), "checksums_v1.parquet")
	sh := describe(t, obj)
	counted := map[string]int{}
	w := newWorld(t, 1<<30)
	o := Options{Columns: func(_ context.Context, reader string, n int) { counted[reader] += n }}
	if _, err := w.scan(t, o, obj, sh, 0, 0); err != nil {
		t.Fatal(err)
	}
	if counted["own"] != 3 || counted["arrow-go"] != 1 || len(counted) != 2 {
		t.Errorf("%v", counted)
	}
}

// TestPageSizesThatLie makes the first page of a chunk say that it is longer than the chunk, or decompresses to more than any may.
func TestPageSizesThatLie(t *testing.T) {
	good, err := os.ReadFile(filepath.Join(folder(t), "long.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	obj := put(t, good)
	sh := describe(t, obj)
	at := chunkOf(t, obj, sh, 2).start // of lists
	p, err := readPage(bytes.NewReader(good), at, int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	raw, size := zigzag(p.raw), zigzag(p.size)
	for name, c := range map[string]struct {
		was, is []byte
		err     error
		want    string
	}{
		"stored":       {size, zigzag(1<<(7*len(size)-1) - 1), snapshot.ErrCorrupt, "compressed_page_size"},
		"decompressed": {raw, zigzag(1<<(7*len(raw)-1) - 1), snapshot.ErrCorrupt, "decompresses to"},
	} {
		bad := bytes.Clone(good)
		header := bad[at : at+p.header]
		i := bytes.LastIndex(header, c.was)
		if name == "decompressed" {
			i = bytes.Index(header, c.was)
		}
		if i < 0 || len(c.is) != len(c.was) {
			t.Fatalf("%s: the header is not as the test expects it", name)
		}
		copy(header[i:], c.is)
		for _, arrowGo := range []bool{false, true} {
			w := newWorld(t, 1<<30)
			obj := put(t, bad)
			_, err := w.scan(t, Options{arrowGo: arrowGo}, obj, describe(t, obj), 0, 0)
			if name == "decompressed" && arrowGo && errors.Is(err, c.err) {
				continue // in its own words
			}
			refuses(t, err, c.err, "row group 0", `column "v`, c.want)
		}
	}
}

// zigzag is a number as page headers have it.
func zigzag(n int64) []byte { return binary.AppendVarint(nil, n) }

// TestPageLimit refuses pages that are larger than the setting, and names it.
func TestPageLimit(t *testing.T) {
	for _, arrowGo := range []bool{false, true} {
		obj := store(t, folder(t), "long.parquet")
		sh := describe(t, obj)
		w := newWorld(t, 1<<30)
		for limit, good := range map[int64]bool{1000: false, 1 << 20: true} {
			_, err := w.scan(t, Options{PageBytes: limit, arrowGo: arrowGo}, obj, sh, 0, 0)
			if good != (err == nil) {
				t.Errorf("with a limit of %d: %v", limit, err)
			}
			if err != nil && (!errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), "limits.page_bytes")) {
				t.Errorf("the error does not say why: %v", err)
			}
		}
	}
}

// TestLittleHeap reads a large column of each kind: what is decoded does not pass through the Go heap.
func TestLittleHeap(t *testing.T) {
	obj := store(t, folder(t), "huge.one")
	sh := describe(t, obj)
	for _, column := range []string{"n", "x", "s", "c"} {
		p, err := schema.Project(sh.Schema, [][]string{{column}})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, 1<<30)
		scanBlocks(t, w, obj, sh, p) // what is made once
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decoded := scanBlocks(t, w, obj, sh, p)
		runtime.ReadMemStats(&after)
		if heap := int64(after.TotalAlloc - before.TotalAlloc); heap > decoded/100+200<<10 { // what a scanner itself takes
			t.Errorf("%s: %d bytes of the heap for %d decoded", column, heap, decoded)
		}
	}
}

func scanBlocks(t testing.TB, w *world, obj *bucket.Object, sh *snapshot.Shard, p *schema.Projection) (decoded int64) {
	s, err := (Options{}).Open(t.Context(), obj, sh, 0, p, w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range sh.Segments[0].Blocks() {
		from, to := sh.Segments[0].Block(i)
		leases, err := s.Next(t.Context(), nil, to-from)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			decoded += l.Bytes()
			l.Release()
		}
	}
	return decoded
}

// TestZeroUnderNulls looks at the bytes of null rows: nothing that was there before may get out.
func TestZeroUnderNulls(t *testing.T) {
	obj := store(t, folder(t), "flat_v1.parquet")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	for _, a := range w.readFile(t, obj, sh, schema.All(sh.Schema), 100) {
		fixed, ok := a.DataType().(arrow.FixedWidthDataType)
		if !ok || fixed.BitWidth() < 8 || a.NullN() == 0 {
			continue
		}
		width, data := fixed.Bytes(), a.Data().Buffers()[1].Bytes()
		for i := range a.Len() {
			if a.IsNull(i) && !bytes.Equal(data[i*width:][:width], make([]byte, width)) {
				t.Errorf("%s: row %d is null and has bytes", a.DataType(), i)
				break
			}
		}
	}
}

// TestUUIDsInDeltas reads a public file in an encoding that arrow-go has not got.
func TestUUIDsInDeltas(t *testing.T) {
	dir := filepath.Join(corpora(t), "duckdb", "parquet-testing")
	if _, err := os.Stat(filepath.Join(dir, "uuid_v2.parquet")); err != nil {
		t.Skip(err)
	}
	obj := store(t, dir, "uuid_v2.parquet")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	if a := w.readFile(t, obj, sh, schema.All(sh.Schema), 5000)[0]; a.Len() != 100_000 {
		t.Errorf("%d rows", a.Len())
	}
}

// expiring is a context that ends when it has been asked so many times.
type expiring struct {
	context.Context
	left atomic.Int32
}

func (e *expiring) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancelWithin cancels a scan at every place where it asks, also in the
// middle of a page: it ends with just that, and gives everything back.
func TestCancelWithin(t *testing.T) {
	obj := store(t, folder(t), "huge.one")
	sh := describe(t, obj)
	asked := int32(0)
	for at := int32(0); ; at += 1 + at/4 {
		w := newWorld(t, 1<<30)
		s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
		if err != nil {
			t.Fatal(err)
		}
		ctx := &expiring{Context: t.Context()}
		ctx.left.Store(at)
		leases, err := s.Next(ctx, nil, 8000)
		for _, l := range leases {
			l.Release()
		}
		s.Close()
		if err == nil {
			break
		}
		if asked = at; !errors.Is(err, context.Canceled) || errors.Is(err, snapshot.ErrCorrupt) {
			t.Fatalf("after %d times: %v", at, err)
		}
	}
	if pages := int32(12); asked < 2*pages { // of about 1 MiB, in the rows that were asked for
		t.Errorf("it was asked %d times", asked)
	}
}

// TestManySmallPages charges what pages take on the heap, however small they are.
func TestManySmallPages(t *testing.T) {
	obj := store(t, folder(t), "flat_v1_full.parquet")
	sh := describe(t, obj)
	w := newWorld(t, 1<<30)
	s, err := (Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	before := w.ledger.Stats().Heap
	leases, err := s.Next(t.Context(), nil, sh.Segments[0].Rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		l.Release()
	}
	if held := w.ledger.Stats().Heap - before; held < int64(len(s.columns))*perPage {
		t.Errorf("%d bytes charged for the pages of %d columns", held, len(s.columns))
	}
}
