package codec

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

const (
	viewBytes  = 16 // length; then 12 bytes of value, or 4 of prefix, buffer number, offset
	viewInline = 12 // the longest value that a view holds itself
)

// span is a run of bytes in one of an array's data buffers.
type span struct {
	buffer, from, to int
	at               int // where it begins in the buffer that is sent
}

// views adds strings or binaries as views. The bytes that they refer to are sent as one data buffer, in the order in
// which they lie in memory; what no row refers to is left out.
func (l *layout) views(d arrow.ArrayData, from, n int) error {
	raw, err := window(bytesOf(d, 1), from, n, viewBytes)
	if err != nil {
		return err
	}
	ok := valid(d)
	dirty, err := l.findSpans(d, raw, from, ok)
	if err != nil {
		return err
	}
	total, err := l.joinSpans()
	if err != nil {
		return err
	}
	same := len(l.spans) == 0 || len(l.spans) == 1 && l.spans[0].buffer == 0 && l.spans[0].from == 0
	if same && !dirty {
		l.lend(raw)
	} else if err := l.rewriteViews(raw, from, ok); err != nil {
		return err
	}
	if len(l.spans) == 0 {
		l.variadic = append(l.variadic, 0)
		return nil
	}
	l.variadic = append(l.variadic, 1)
	return l.spanned(d, total)
}

// findSpans collects what the views refer to, neighbours joined. dirty tells whether a null row holds anything.
func (l *layout) findSpans(d arrow.ArrayData, raw []byte, from int, valid func(int) bool) (dirty bool, err error) {
	l.spans = l.spans[:0]
	for i := 0; i < len(raw); i += viewBytes {
		v := raw[i : i+viewBytes]
		if valid != nil && !valid(from+i/viewBytes) {
			dirty = dirty || [viewBytes]byte(v) != [viewBytes]byte{}
			continue
		}
		size, number, at := splitView(v)
		if size >= 0 && size <= viewInline {
			continue
		}
		if size < 0 || number < 0 || at < 0 || at+size > len(bytesOf(d, 2+number)) {
			return false, fmt.Errorf("%w: a view of %d bytes at %d of buffer %d", ErrCorrupt, size, at, number)
		}
		if k := len(l.spans) - 1; k >= 0 && l.spans[k].buffer == number && l.spans[k].from <= at && at <= l.spans[k].to {
			l.spans[k].to = max(l.spans[k].to, at+size)
			continue
		}
		l.spans = append(l.spans, span{buffer: number, from: at, to: at + size})
	}
	return dirty, nil
}

func splitView(v []byte) (size, buffer, at int) {
	return int(int32(binary.LittleEndian.Uint32(v))), int(int32(binary.LittleEndian.Uint32(v[8:]))),
		int(int32(binary.LittleEndian.Uint32(v[12:])))
}

// joinSpans sorts the spans, joins those that touch or overlap, and gives each its place in the buffer to send.
func (l *layout) joinSpans() (total int, err error) {
	slices.SortFunc(l.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.buffer, b.buffer), cmp.Compare(a.from, b.from))
	})
	joined := l.spans[:0]
	for _, s := range l.spans {
		if k := len(joined) - 1; k >= 0 && joined[k].buffer == s.buffer && joined[k].to >= s.from {
			joined[k].to = max(joined[k].to, s.to)
			continue
		}
		joined = append(joined, s)
	}
	l.spans = joined
	for i := range l.spans {
		l.spans[i].at = total
		total += l.spans[i].to - l.spans[i].from
	}
	if total > math.MaxInt32 {
		return 0, fmt.Errorf("%w: %d bytes of views in one batch", ErrUnsupported, total)
	}
	return total, nil
}

// rewriteViews adds the views with the places that joinSpans gave; null rows become zeros.
func (l *layout) rewriteViews(raw []byte, from int, valid func(int) bool) error {
	out, err := l.own(len(raw))
	if err != nil {
		return err
	}
	copy(out, raw)
	for i := 0; i < len(out); i += viewBytes {
		v := out[i : i+viewBytes]
		if valid != nil && !valid(from+i/viewBytes) {
			clear(v)
			continue
		}
		size, number, at := splitView(v)
		if size <= viewInline {
			continue
		}
		k, _ := slices.BinarySearchFunc(l.spans, span{buffer: number, from: at}, func(s, want span) int {
			if s.buffer == want.buffer && s.from <= want.from && want.from < s.to {
				return 0
			}
			return cmp.Or(cmp.Compare(s.buffer, want.buffer), cmp.Compare(s.from, want.from))
		})
		s := l.spans[k]
		binary.LittleEndian.PutUint32(v[8:], 0)
		binary.LittleEndian.PutUint32(v[12:], uint32(s.at+at-s.from))
	}
	return nil
}

// spanned adds the bytes of the spans as one buffer: in place if the spans are long, else as a copy.
func (l *layout) spanned(d arrow.ArrayData, total int) error {
	const long = 4 << 10 // bytes, mean; below it a list of slices costs gRPC more than the copy
	if total >= long*len(l.spans) || len(l.spans) == 1 {
		pieces := make([]piece, len(l.spans))
		for i, s := range l.spans {
			pieces[i].data = bytesOf(d, 2+s.buffer)[s.from:s.to:s.to]
		}
		l.put(pieces...)
		return nil
	}
	out, err := l.own(total)
	if err != nil {
		return err
	}
	for _, s := range l.spans {
		copy(out[s.at:], bytesOf(d, 2+s.buffer)[s.from:s.to])
	}
	return nil
}
