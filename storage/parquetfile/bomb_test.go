package parquetfile

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// TestBombs gives decompressors little to read that becomes a lot: they must
// stop at the room there is for the page.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 64<<20)
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for codec, bomb := range map[compress.Compression][]byte{
		compress.Codecs.Zstd:   e.EncodeAll(zeros, nil),
		compress.Codecs.Snappy: snappy.Encode(nil, zeros),
	} {
		c, err := compress.GetCodec(codec)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 100, 1<<20)
		if out, err := compress.Decode(c, dst, bomb); err == nil {
			t.Errorf("%s: %d bytes where there is room for 100", codec, len(out))
		}
		if out, err := compress.Decode(c, dst[:0], nil); err != nil || len(out) > 0 {
			t.Errorf("%s: nothing becomes %d bytes, %v", codec, len(out), err)
		}
	}
}

// TestForgedFooter claims more than a footer has bytes for.
func TestForgedFooter(t *testing.T) {
	list := func(n uint64) []byte {
		// Field 2, a list of n structs; then empty ones as far as they go.
		return append(binary.AppendUvarint([]byte{2<<4 | thriftList, 0xf0 | thriftStruct}, n), make([]byte, 100)...)
	}
	root := func(children int64) []byte {
		b := []byte{2<<4 | thriftList, 1<<4 | thriftStruct, 5<<4 | thriftI32}
		return append(binary.AppendVarint(b, children), 0, 0)
	}
	deep := []byte{2<<4 | thriftList, 0xf0 | thriftStruct}
	deep = binary.AppendUvarint(deep, 5000)
	deep = append(append(deep, bytes.Repeat([]byte{5<<4 | thriftI32, 2, 0}, 5000)...), 0)
	for name, b := range map[string][]byte{
		"list": list(1 << 40), "children": root(1 << 30), "negative": root(-1), "deep": deep,
		"nested lists": bytes.Repeat([]byte{1<<4 | thriftList}, 10_000),
		"nested":       bytes.Repeat([]byte{1<<4 | thriftStruct}, 10_000),
	} {
		if _, err := checkFooter(b); err == nil {
			t.Errorf("%s passed", name)
		}
	}
	if _, err := checkFooter(root(0)); err != nil {
		t.Errorf("a schema without columns: %v", err)
	}
}
