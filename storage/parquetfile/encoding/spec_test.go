package encoding

import (
	"slices"
	"testing"
)

// The bytes here are worked out by hand from the format's own description.

func TestHybridPackedRun(t *testing.T) {
	var h Hybrid
	if err := h.Reset([]byte{1<<1 | 1, 0x88, 0xC6, 0xFA, 5 << 1, 6}, 3); err != nil {
		t.Fatal(err)
	}
	got := make([]uint32, 13)
	if err := h.Decode(got); err != nil {
		t.Fatal(err)
	}
	if want := []uint32{0, 1, 2, 3, 4, 5, 6, 7, 6, 6, 6, 6, 6}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDeltaOfTheFormat(t *testing.T) {
	// 7, 5, 3, 1, 2, 3, 4, 5: differences -2, -2, -2, 1, 1, 1, 1; the least is -2, and what is left takes two bits.
	b := []byte{0x80, 0x01, 4, 8, 14, 3, 2, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0, 0, 0, 0, 0xAA}
	var d Delta[int64]
	if err := d.Reset(b); err != nil {
		t.Fatal(err)
	}
	rest, err := d.Rest()
	if err != nil || len(rest) != 1 || rest[0] != 0xAA {
		t.Fatalf("behind the values are %x, %v", rest, err)
	}
	got := make([]int64, 8)
	if err := d.Decode(got); err != nil {
		t.Fatal(err)
	}
	if want := []int64{7, 5, 3, 1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSplitOfTheFormat(t *testing.T) {
	var s Split
	if err := s.Reset([]byte{0xAA, 0x00, 0xA3, 0xBB, 0x11, 0xB4, 0xCC, 0x22, 0xC5, 0xDD, 0x33, 0xD6}, 4); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 12)
	if err := s.Decode(got); err != nil {
		t.Fatal(err)
	}
	if want := []byte{0xAA, 0xBB, 0xCC, 0xDD, 0, 0x11, 0x22, 0x33, 0xA3, 0xB4, 0xC5, 0xD6}; !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestFrontBytesOfTheFormat(t *testing.T) {
	// axis, axle, babble, babyhood: prefixes 0, 2, 0, 3; suffixes axis, le, babble, yhood.
	prefixes := []byte{0x80, 0x01, 4, 4, 0, 3, 3, 0, 0, 0, 0b00_101_000 | 0b01<<6, 0b1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	// Differences 2, -2, 3 less the least, -2: 4, 0, 5, of three bits.
	prefixes[10], prefixes[11] = 0b01_000_100, 0b1
	lengths := []byte{0x80, 0x01, 4, 4, 8, 3, 3, 0, 0, 0, 0b01_110_000, 0b0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b := slices.Concat(prefixes, lengths, []byte("axislebabbleyhood"))
	var f FrontBytes[int32]
	if err := f.Reset(b); err != nil {
		t.Fatal(err)
	}
	size, err := f.Measure(4)
	if err != nil || size != 22 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	offsets, data := make([]int32, 5), make([]byte, size)
	if err := f.Decode(offsets, data); err != nil {
		t.Fatal(err)
	}
	if string(data) != "axisaxlebabblebabyhood" || !slices.Equal(offsets, []int32{0, 4, 8, 14, 22}) {
		t.Errorf("got %q, %v", data, offsets)
	}
}
