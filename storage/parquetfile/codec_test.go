package parquetfile

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/pierrec/lz4/v4"
)

// lz4Block compresses b; short or random bytes do not compress and are no use here.
func lz4Block(t *testing.T, b []byte) []byte {
	t.Helper()
	out := make([]byte, lz4.CompressBlockBound(len(b)))
	n, err := lz4.CompressBlock(b, out, nil)
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	return out[:n]
}

// hadoop puts the two lengths before a block.
func hadoop(raw int, block []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(raw))
	return append(binary.BigEndian.AppendUint32(head, uint32(len(block))), block...)
}

func TestOldLZ4(t *testing.T) {
	a, b := bytes.Repeat([]byte("abc "), 100), bytes.Repeat([]byte("0123456789"), 50)
	both := append(bytes.Clone(a), b...)
	for name, c := range map[string]struct {
		src  []byte
		want []byte // nil: an error
	}{
		"a bare block":           {lz4Block(t, both), both},
		"one block of Hadoop's":  {hadoop(len(both), lz4Block(t, both)), both},
		"two blocks of Hadoop's": {append(hadoop(len(a), lz4Block(t, a)), hadoop(len(b), lz4Block(t, b))...), both},
		"cut short":              {hadoop(len(both), lz4Block(t, both))[:20], nil},
		"too much":               {hadoop(1<<30, lz4Block(t, both)), nil},
		"block past the end":     {append(hadoop(len(a), lz4Block(t, a)), 0, 0, 0, 9, 0, 0, 1, 0), nil},
		"noise":                  {bytes.Repeat([]byte{0xF0, 3}, 30), nil},
	} {
		got, err := decodeOldLZ4(make([]byte, len(both)), c.src)
		if (err != nil) != (c.want == nil) || err == nil && !bytes.Equal(got, c.want) {
			t.Errorf("%s: %.20q, %v", name, got, err)
		}
	}
	if _, err := decodeOldLZ4(make([]byte, 100), lz4Block(t, both)); err == nil {
		t.Error("more bytes than there is room for")
	}
}
