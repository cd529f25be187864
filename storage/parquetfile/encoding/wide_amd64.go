package encoding

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// plan32 tells how eight values of one width are taken apart at once: 16 bytes
// from the start and 16 from byte second on are shuffled so that each value has
// four to itself, shifted down, and cut to the mask.
type plan32 struct {
	shuffle [32]byte
	shift   [8]uint32
	mask    uint32
	second  uint32
}

// plan64 does the same for four values with eight bytes to each. As four values
// need not be whole bytes, the next four begin at byte next and have a plan of their own.
type plan64 struct {
	shuffle [2][32]byte
	shift   [2][4]uint64
	mask    uint64
	second  [2]uint64 // where the upper half begins, from that of the lower
	next    uint64
}

var (
	plans32 [33]plan32
	plans64 [65]plan64
	// wide32 and wide64 have the widths at which no value needs more than the four or eight bytes it gets.
	wide32 = planAll32()
	wide64 = planAll64()
)

func planAll32() (wide [33]bool) {
	for width := 1; width <= 32 && cpu.X86.HasAVX2; width++ {
		p, fits := &plans32[width], true
		p.mask, p.second = uint32(ones(width)), uint32(4*width/8)
		for i := range 8 {
			from, bit := (i*width)>>3, (i*width)&7
			if i >= 4 {
				from -= int(p.second)
			}
			for k := range 4 {
				p.shuffle[i*4+k] = byte(from + k)
			}
			p.shift[i] = uint32(bit)
			fits = fits && bit+width <= 32
		}
		wide[width] = fits
	}
	return wide
}

func planAll64() (wide [65]bool) {
	for width := 1; width <= 64 && cpu.X86.HasAVX2; width++ {
		p, fits := &plans64[width], true
		p.mask, p.next = ones(width), uint64(4*width/8)
		for i := range 8 {
			half := i / 4
			base := half * int(p.next)           // of the four
			lane := (i &^ 1) * width >> 3        // of the two
			p.second[half] = uint64(lane - base) // that of the upper two stays
			from, bit := (i*width)>>3-lane, (i*width)&7
			for k := range 8 {
				p.shuffle[half][i%4*8+k] = byte(min(from+k, 15)) // what is beyond belongs to no value
			}
			p.shift[half][i%4] = uint64(bit)
			fits = fits && bit+width <= 64
		}
		wide[width] = fits
	}
	return wide
}

//go:noescape
func avxUnpack32(dst *uint32, src *byte, rounds, width int, p *plan32)

//go:noescape
func avxSums32(dst *int32, src *byte, rounds, width int, p *plan32, low, last int32) int32

//go:noescape
func avxSums64(dst *int64, src *byte, rounds, width int, p *plan64, low, last int64) int64

// rounds is how many times eight values can be taken from b if reach bytes are read each time.
func rounds(n int, b []byte, width, reach int) int {
	if len(b) < reach {
		return 0
	}
	return min(n/8, (len(b)-reach)/width+1)
}

// wideUnpack32 fills dst as far as it can, and tells how far.
func wideUnpack32(dst []uint32, b []byte, width int) int {
	p := &plans32[width]
	n := rounds(len(dst), b, width, int(p.second)+16)
	if n == 0 {
		return 0
	}
	avxUnpack32(unsafe.SliceData(dst), unsafe.SliceData(b), n, width, p)
	return n * 8
}

// wideSums32 fills dst as far as it can, and tells how far, and the last sum.
func wideSums32(dst []int32, b []byte, width int, low, last int32) (int, int32) {
	if width > 32 || !wide32[width] {
		return 0, last
	}
	p := &plans32[width]
	n := rounds(len(dst), b, width, int(p.second)+16)
	if n == 0 {
		return 0, last
	}
	return n * 8, avxSums32(unsafe.SliceData(dst), unsafe.SliceData(b), n, width, p, low, last)
}

// wideSums64 fills dst as far as it can, and tells how far, and the last sum.
func wideSums64(dst []int64, b []byte, width int, low, last int64) (int, int64) {
	if !wide64[width] {
		return 0, last
	}
	p := &plans64[width]
	n := rounds(len(dst), b, width, int(p.next+p.second[1])+16)
	if n == 0 {
		return 0, last
	}
	return n * 8, avxSums64(unsafe.SliceData(dst), unsafe.SliceData(b), n, width, p, low, last)
}

//go:noescape
func avxJoin2(dst, src *byte, stride, rounds int)

//go:noescape
func avxJoin4(dst, src *byte, stride, rounds int)

//go:noescape
func avxJoin8(dst, src *byte, stride, rounds int)

// wideJoin puts values of 2, 4 or 8 bytes together as far as it can, and tells
// how far: byte k of value i is src[k*stride+i].
func wideJoin(dst, src []byte, stride, width int) int {
	n := len(dst) / width / 16
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	_ = src[(width-1)*stride+n*16-1]
	switch width {
	case 2:
		avxJoin2(unsafe.SliceData(dst), unsafe.SliceData(src), stride, n)
	case 4:
		avxJoin4(unsafe.SliceData(dst), unsafe.SliceData(src), stride, n)
	case 8:
		avxJoin8(unsafe.SliceData(dst), unsafe.SliceData(src), stride, n)
	default:
		return 0
	}
	return n * 16
}
