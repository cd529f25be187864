package frame

import (
	"bytes"
	"errors"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
)

// checkSpoilt assembles rows of a column that may be wrong in any way: there
// must be an error that names it, or rows that can be read.
func checkSpoilt(t rapid.TB, p *Pool, g *budget.Grant, typ arrow.DataType, c Column, rows int64) {
	t.Helper()
	l, err := p.Assemble(g, budget.Frames, schemaOf(typ), []Piece{{[]Column{c}, 0, rows}})
	if err != nil {
		named := strings.Contains(err.Error(), `column "c0`) && (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrOverflow))
		if !named && !errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("%s: %v", typ, err)
		}
		return
	}
	checkExact(t, l)
	rowsOf(l.Batch().Column(0), 0, int(l.Batch().NumRows())) // every offset leads somewhere
	l.Release()
}

func TestAssembleOfCorruptBytesNeverPanics(t *testing.T) {
	_, g, p := world(t, 1<<22)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		typ := arrowtest.Type(r, 3)
		m := &arrowtest.Maker{Rand: r, Nulls: true}
		c := ColumnOf(m.Array(typ, 1+r.Intn(30)))
		rows := c.Len
		spoil(r, &c)
		checkSpoilt(t, p, g, typ, c, rows)
	})
}

// spoil flips bits of c's buffers, cuts them short, or changes its numbers.
func spoil(r *rand.Rand, c *Column) {
	for i := range c.Buffers {
		b := bytes.Clone(c.Buffers[i].Mem)
		c.Buffers[i].Mem = b
		switch {
		case len(b) == 0 || r.Intn(2) == 0:
		case r.Intn(4) == 0:
			c.Buffers[i].Mem = b[:r.Intn(len(b))]
		default:
			for range 1 + r.Intn(3) {
				b[r.Intn(len(b))] ^= 1 << r.Intn(8)
			}
		}
	}
	if r.Intn(5) == 0 {
		lengths := []int64{-1, 0, 1, c.Len + 1, math.MaxInt64, math.MinInt64, 1 << 40}
		field := []*int64{&c.Len, &c.Offset, &c.Nulls}[r.Intn(3)]
		*field = lengths[r.Intn(len(lengths))]
	}
	for i := range c.Children {
		spoil(r, &c.Children[i])
	}
}

// What decides the sizes is read again when it is copied: a file that changes
// in between must not lead outside of what was measured.
func TestAssembleOfFilesThatChangeNeverPanics(t *testing.T) {
	_, g, p := world(t, 1<<22)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		typ := arrowtest.Type(r, 3)
		m := &arrowtest.Maker{Rand: r, Nulls: true}
		var file bytes.Buffer
		c := filed(ColumnOf(m.Array(typ, 1+r.Intn(30))), &file)
		readFrom(&c, &fickle{r, file.Bytes()})
		checkSpoilt(t, p, g, typ, c, c.Len)
	})
}

// fickle flips a bit in one of four reads.
type fickle struct {
	*rand.Rand
	file []byte
}

func (f *fickle) ReadAt(b []byte, off int64) (int, error) {
	n := copy(b, f.file[off:])
	if n > 0 && f.Intn(4) == 0 {
		b[f.Intn(n)] ^= 1 << f.Intn(8)
	}
	return n, nil
}

// FuzzAssemble lays noise over the buffers of an array that seed decides.
func FuzzAssemble(f *testing.F) {
	f.Add(int64(1), []byte{})
	f.Add(int64(2), bytes.Repeat([]byte{0xFF}, 64))
	f.Add(int64(3), bytes.Repeat([]byte{0, 0, 0, 0x80}, 32))
	f.Fuzz(func(t *testing.T, seed int64, noise []byte) {
		_, g, p := world(t, 1<<22)
		r := rand.New(rand.NewSource(seed))
		typ := arrowtest.Type(r, 3)
		m := &arrowtest.Maker{Rand: r, Nulls: true}
		c := ColumnOf(m.Array(typ, 20))
		overlay(&c, &noise)
		checkSpoilt(t, p, g, typ, c, c.Len)
	})
}

// overlay uses noise up, buffer by buffer.
func overlay(c *Column, noise *[]byte) {
	for i := range c.Buffers {
		c.Buffers[i].Mem = bytes.Clone(c.Buffers[i].Mem)
		for j := range c.Buffers[i].Mem {
			if len(*noise) == 0 {
				return
			}
			c.Buffers[i].Mem[j] ^= (*noise)[0]
			*noise = (*noise)[1:]
		}
	}
	for i := range c.Children {
		overlay(&c.Children[i], noise)
	}
}
