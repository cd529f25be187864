package frame

import (
	"errors"
	"math/rand"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/headrace/headrace/storage/budget"
)

func TestScratchIsZeroedAlignedAndCharged(t *testing.T) {
	l, g, p := world(t, 1<<24)
	s := p.Scratch(g)
	for _, n := range []int{1, 64, small - 1, small, 5000, 1 << 20} {
		b := s.Allocate(n)
		if len(b) != n || cap(b) != n || uintptr(unsafe.Pointer(&b[0]))%align != 0 {
			t.Fatalf("%d bytes: length %d, capacity %d", n, len(b), cap(b))
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("byte %d of %d is %#x", i, n, b[i])
			}
			b[i] = 1
		}
		if used := l.Stats().Used[budget.Scratch]; used < int64(n) {
			t.Fatalf("%d bytes cost %d", n, used)
		}
		s.Free(b)
		s.Free(b)
		if used := l.Stats().Used[budget.Scratch]; used != 0 {
			t.Fatalf("%d still charged", used)
		}
	}
	if b := s.Allocate(0); len(b) != 0 {
		t.Fatal("bytes for nothing")
	}
	s.Free(nil)
	s.Free(make([]byte, 10)) // somebody else's
	s.Close()
}

// Whatever sizes it goes through, a buffer keeps its bytes and is zero beyond them.
func TestScratchReallocates(t *testing.T) {
	_, g, p := world(t, 1<<24)
	s := p.Scratch(g)
	defer s.Close()
	r := rand.New(rand.NewSource(1))
	var b, want []byte
	for range 500 {
		size := r.Intn(20_000)
		b = s.Reallocate(size, b)
		if size < len(want) {
			want = want[:size]
		}
		want = append(want, make([]byte, size-len(want))...)
		if string(b) != string(want) {
			t.Fatalf("bytes changed on the way to %d", size)
		}
		for i := range b {
			b[i] = byte(r.Int())
		}
		want = append(want[:0], b...)
	}
}

func TestScratchPanicsWhenTheGrantIsUsedUp(t *testing.T) {
	l, g, p := world(t, 1<<20)
	s := p.Scratch(g)
	kept := s.Allocate(1 << 19)
	for _, use := range []func(){
		func() { s.Allocate(1 << 20) },
		func() { s.Reallocate(1<<20, kept) },
		func() { s.Allocate(1 << 50) },
	} {
		func() {
			defer func() {
				err, ok := recover().(error)
				if !ok || !errors.Is(err, budget.ErrExhausted) {
					t.Errorf("panicked with %v", err)
				}
			}()
			use()
		}()
	}
	s.Close() // frees what is left
	s.Close()
	if used := l.Stats().Used[budget.Scratch]; used != 0 {
		t.Errorf("%d still charged", used)
	}
	defer func() {
		if recover() == nil {
			t.Error("a closed scratch allocates")
		}
	}()
	s.Allocate(1)
}

func TestScratchLends(t *testing.T) {
	l, g, p := world(t, 1<<20)
	s := p.Scratch(g)
	defer s.Close()
	other := errors.New("other")
	if err := s.Lend(func() error { s.Free(s.Allocate(100)); return other }); !errors.Is(err, other) {
		t.Errorf("%v, want the error of the function", err)
	}
	err := s.Lend(func() error {
		for _, size := range []int{2 << 20, 1 << 10} {
			if b := s.Allocate(size); len(b) != size || uintptr(unsafe.Pointer(&b[0]))%64 != 0 {
				t.Errorf("%d bytes at %p", len(b), b)
			} else {
				s.Free(b)
			}
		}
		return other
	})
	if !errors.Is(err, budget.ErrExhausted) {
		t.Errorf("%v, want budget.ErrExhausted", err)
	}
	if err := s.Lend(func() error { return nil }); err != nil {
		t.Errorf("%v is from the time before", err)
	}
	if used := l.Stats().Used[budget.Scratch]; used != 0 {
		t.Errorf("%d still charged", used)
	}
	defer func() {
		if recover() == nil {
			t.Error("lends for ever")
		}
	}()
	s.Allocate(2 << 20)
}

func TestScratchServesArrow(t *testing.T) {
	l, g, p := world(t, 1<<24)
	s := p.Scratch(g)
	b := array.NewListBuilder(s, arrow.BinaryTypes.String)
	for i := range 3000 {
		b.Append(i%3 > 0)
		if i%3 > 0 {
			b.ValueBuilder().(*array.StringBuilder).Append("value")
		}
	}
	arr := b.NewArray()
	b.Release()
	if arr.Len() != 3000 || arr.NullN() != 1000 {
		t.Error(arr.Len(), arr.NullN())
	}
	arr.Release()
	if used := l.Stats().Used[budget.Scratch]; used != 0 {
		t.Errorf("%d still charged", used)
	}
	s.Close()
}
