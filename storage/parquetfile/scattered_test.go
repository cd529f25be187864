package parquetfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	pqschema "github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/klauspost/compress/snappy"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/frame"
)

// snappyOf writes text as a Snappy block whose elements are cut as each byte of cuts says, over and over: a literal of
// so many bytes, or where the lowest bit is set a copy, if there is one to be made.
func snappyOf(text, cuts []byte) []byte {
	out := binary.AppendUvarint(nil, uint64(len(text)))
	for i, at := 0, 0; at < len(text); i++ {
		cut := cuts[i%len(cuts)]
		if n, back := repeat(text, at, int(cut)); cut&1 == 1 && back > 0 {
			out = append(out, byte(n-1)<<2|2, byte(back), byte(back>>8))
			at += n
			continue
		}
		n := min(len(text)-at, 1+int(cut)*int(cut)/4)
		out = append(out, 62<<2, byte(n-1), byte((n-1)>>8), byte((n-1)>>16))
		out = append(out, text[at:at+n]...)
		at += n
	}
	return out
}

// repeat finds what the text at some place repeats, up to 64 bytes from not too far back.
func repeat(text []byte, at, hint int) (n, back int) {
	for _, back := range []int{1 + hint%8, 1 + hint, 256 * hint, 60_000} {
		if back > at || back < 1 {
			continue
		}
		for n = 0; n < 64 && at+n < len(text) && text[at+n] == text[at+n-back]; n++ {
		}
		if n > 0 {
			return n, back
		}
	}
	return 0, 0
}

// blobPage is the body of a data page of blobs, before compression: as many as there are lengths, each 256 times as long
// as its length says. Odd ones repeat a few bytes, and null ones, if they can be null, have length 0.
func blobPage(lengths []byte, nullable bool) (text []byte) {
	rng := rand.New(rand.NewPCG(1, uint64(len(lengths))))
	var values, levels []byte
	for _, length := range lengths {
		level := byte(1)
		if nullable && length == 0 {
			level = 0
		}
		levels = append(levels, 1<<1, level) // a run of one
		if level == 0 {
			continue
		}
		n := int(length) << 8
		values = binary.LittleEndian.AppendUint32(values, uint32(n))
		for i := range n {
			if length&1 == 1 && i < 100 {
				values = append(values, "what every image begins with"[i%20])
			} else {
				values = append(values, byte(rng.Uint32()))
			}
		}
	}
	if nullable {
		text = append(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels...)
	}
	return append(text, values...)
}

// inMemory is an object of the store.
type inMemory struct{ b []byte }

func (m inMemory) ReaderAt(context.Context) io.ReaderAt { return bytes.NewReader(m.b) }
func (m inMemory) Size() int64                          { return int64(len(m.b)) }
func (m inMemory) Remote() bool                         { return false }

// layout is where blobs are stored: in a data page of ones that may be null, of ones that may not, or in a dictionary.
type layout int

const (
	nullable layout = iota
	required
	dictionary
)

// blobReader is a reader of one column chunk, of which a Snappy block is the first page.
func (w *world) blobReader(t testing.TB, file inMemory, rows int, of layout) *leafReader {
	t.Helper()
	repetition := parquet.Repetitions.Required
	if of == nullable {
		repetition = parquet.Repetitions.Optional
	}
	root := must(pqschema.NewGroupNode("schema", parquet.Repetitions.Required, pqschema.FieldList{pqschema.NewByteArrayNode("x", repetition, -1)}, -1))(t)
	l := &leafReader{rows: int64(rows)}
	l.input = input{source: &source{ctx: t.Context(), obj: file, store: file}, pool: w.pool, grant: w.grant, end: file.Size(), step: 1 << 10}
	l.chunk, l.inflater, l.limit = chunk{values: int64(rows), codec: compress.Codecs.Snappy}, new(inflater), maxPage
	l.init(pqschema.NewSchema(root).Column(0))
	l.make = must(newValues(l, l.column, arrow.BinaryTypes.Binary))(t)
	return l
}

// readBlobs reads n blobs from a Snappy block of raw bytes, in two halves, and tells whether they lay in pieces. whole has
// it decompressed as every page is.
func (w *world) readBlobs(t testing.TB, block []byte, raw, n int, of layout, whole bool) (got []byte, scattered bool, err error) {
	t.Helper()
	indices := append([]byte{8, byte(n+7)/8<<1 | 1}, make([]byte, (n+7)/8*8)...)
	for i := range n {
		indices[2+i] = byte(n - 1 - i)
	}
	l := w.blobReader(t, inMemory{slices.Concat(block, indices)}, n, of)
	defer l.close()
	l.whole = whole
	h := page{kind: pageData, raw: int64(raw), size: int64(len(block)), values: int64(n), repeats: parquet.Encodings.RLE, defines: parquet.Encodings.RLE}
	if of == dictionary {
		h.kind = pageDict
		if err := l.readDictionary(h); err != nil {
			return nil, false, err
		}
		scattered = l.heap > 0
		h = page{kind: pageDataV2, bare: true, raw: int64(len(indices)), size: int64(len(indices)), values: int64(n), rows: int64(n), encoding: parquet.Encodings.RLEDict}
	}
	p := must(l.read(h))(t)
	if err := l.enter(p); err != nil {
		return nil, false, err
	}
	for _, rows := range []int{n / 2, n - n/2} {
		l.begin()
		if err := l.takeFlat(rows); err != nil {
			return nil, false, err
		}
		scattered = scattered || len(p.pieces) > 0
		dst := [][]byte{make([]byte, 4*(rows+1)), make([]byte, l.make.bytes())}
		if err := l.fill(dst); err != nil {
			return nil, false, err
		}
		got = append(append(got, dst[0]...), dst[1]...)
	}
	return got, scattered, nil
}

// must returns v, if there is no error, or fails the test.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// compareBlobs reads blobs both ways and compares what comes, errors included.
func compareBlobs(t testing.TB, w *world, block []byte, raw, n int, of layout) (scattered bool, err error) {
	t.Helper()
	want, _, plainly := w.readBlobs(t, block, raw, n, of, true)
	got, scattered, err := w.readBlobs(t, block, raw, n, of, false)
	if fmt.Sprint(err) != fmt.Sprint(plainly) {
		t.Fatalf("%v, not %v", err, plainly)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("other blobs in pieces than in the whole")
	}
	return scattered, err
}

// TestScatteredBlobs reads blobs where they lie, in pages that are cut in many ways: within levels, lengths and values,
// and at their ends.
func TestScatteredBlobs(t *testing.T) {
	w := newWorld(t, 1<<30)
	var scattered, not [dictionary + 1]int
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.Just(byte(0))), 1, 30).Draw(r, "lengths")
		cuts := rapid.SliceOfN(rapid.OneOf(rapid.ByteRange(0, 40), rapid.ByteRange(200, 255), rapid.Just(byte(254))), 1, 9).Draw(r, "cuts")
		of := rapid.SampledFrom([]layout{nullable, required, dictionary}).Draw(r, "layout")
		body := blobPage(lengths, of == nullable)
		pieces, err := compareBlobs(t, w, snappyOf(body, cuts), len(body), len(lengths), of)
		if err != nil {
			r.Fatal(err)
		}
		if pieces {
			scattered[of]++
		} else {
			not[of]++
		}
	})
	if min(slices.Min(scattered[:]), slices.Min(not[:])) == 0 {
		t.Errorf("by layout, %d pages were read in pieces, %d were not", scattered, not)
	}
}

// FuzzBlobs does so after it has damaged the page.
func FuzzBlobs(f *testing.F) {
	f.Add([]byte{31, 100, 0, 255}, []byte{254}, byte(nullable), uint32(0), []byte{})
	f.Add([]byte{31, 101, 40, 33}, []byte{9, 253, 30, 17, 255}, byte(required), uint32(0), []byte{})
	f.Add([]byte{31, 101, 40, 33}, []byte{9, 253, 30, 17, 255}, byte(dictionary), uint32(0), []byte{})
	f.Add(bytes.Repeat([]byte{21, 0}, 15), []byte{6, 255}, byte(nullable), uint32(0), []byte{}) // levels in two pieces
	f.Add([]byte{200, 200}, []byte{11, 255}, byte(dictionary), uint32(9), []byte{0xFF, 0xFF})
	f.Add([]byte{200, 200}, []byte{11, 255}, byte(required), uint32(9), []byte{0xFF, 0xFF})
	f.Add([]byte{200, 200}, []byte{255}, byte(nullable), uint32(3), []byte{0, 1, 62 << 2})
	f.Fuzz(func(t *testing.T, lengths, cuts []byte, of byte, at uint32, patch []byte) {
		if len(lengths) == 0 || len(lengths) > 40 || len(cuts) == 0 {
			return
		}
		of %= byte(dictionary) + 1
		body := blobPage(lengths, layout(of) == nullable)
		block := snappyOf(body, cuts)
		copy(block[int(at)%len(block):], patch)
		_, _ = compareBlobs(t, newWorld(t, 1<<30), block, len(body), len(lengths), layout(of))
	})
}

// FuzzSnappy takes the input for a block, or for the elements of one whose literals it makes long: pieces are made only
// of what a decoder would decompress, to the same.
func FuzzSnappy(f *testing.F) {
	f.Add(snappy.Encode(nil, bytes.Repeat([]byte("over and over "), 40)))
	f.Add([]byte{0x90, 0x4e, 62 << 2, 0x0f, 0x27, 0})
	f.Add([]byte{5, 0, 'a', 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, block := range [][]byte{b, stretch(b)} {
			size, _ := binary.Uvarint(block)
			n := int(min(size, 1<<20))
			text := text{pieces: make([][]byte, 0, 16+n>>13), made: make([]byte, 0, 2*front+n/8)}
			if !text.decode(block, n) {
				continue
			}
			want, err := decodeSnappy(make([]byte, n), block)
			if err != nil || !bytes.Equal(bytes.Join(text.pieces, nil), want) {
				t.Fatalf("%x: %d pieces, %v", block, len(text.pieces), err)
			}
		}
	})
}

// stretch makes literals of what follows elements in b that are literals, 5,000 bytes longer, and gives the block its length.
func stretch(b []byte) []byte {
	var out []byte
	n := 0
	for len(b) > 0 {
		e := parseElement(b)
		if e.head == 0 {
			break
		}
		head := b[:e.head]
		b = b[e.head:]
		if n += e.copied; e.literal > 0 {
			size := min(e.literal, 1000)
			if size%2 == 1 {
				size += 5000
			}
			head = []byte{62 << 2, byte(size - 1), byte((size - 1) >> 8), 0}
			for i := range size {
				head = append(head, byte(i*7>>3))
			}
			n += size
		}
		out = append(out, head...)
	}
	return append(binary.AppendUvarint(nil, uint64(n)), out...)
}

// TestBlobsInPlace reads what pyarrow writes of images: all pages of them but dictionaries are read in pieces.
func TestBlobsInPlace(t *testing.T) {
	for _, name := range names(t, "blobs_") {
		w := newWorld(t, 1<<30)
		obj := store(t, folder(t), name+".parquet")
		sh := describe(t, obj)
		s := must((Options{}).Open(t.Context(), obj, sh, 0, schema.All(sh.Schema), w.pool, w.grant))(t)
		for i, c := range s.columns {
			if err := s.takeOwn(&c, s.rows/2, new(frame.Column)); err != nil {
				t.Fatal(err)
			}
			pieces := 0
			for _, p := range c.own.leaves[0].pages {
				if !p.indexed() && !p.bare && len(p.pieces) == 0 {
					t.Errorf("%s: column %d: %+v is in one piece", name, i, p.page)
				}
				pieces += len(p.pieces)
			}
			if pieces == 0 && name == "blobs_v1" { // pages of version 2 that do not become shorter are not compressed
				t.Errorf("%s: column %d has no pieces", name, i)
			}
		}
		s.Close()
	}
}
