//go:build !race

package gather

import (
	"math/rand"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/storage/arrowtest"
	"github.com/headrace/headrace/storage/budget"
)

// After the first batches nothing is allocated for rows, only a few headers for each array.
func TestGatherAllocatesHeadersOnly(t *testing.T) {
	w := newWorld(t, false)
	r := rand.New(rand.NewSource(1))
	m := &arrowtest.Maker{Rand: r, Nulls: true}
	for _, c := range []struct {
		typ    arrow.DataType
		arrays float64
	}{
		{arrow.PrimitiveTypes.Int64, 1},
		{arrow.FixedWidthTypes.Boolean, 1},
		{arrow.BinaryTypes.String, 1},
		{arrow.BinaryTypes.StringView, 1},
		{arrow.FixedSizeListOf(4, arrow.FixedSizeListOf(5, arrow.PrimitiveTypes.Float32)), 3},
		{arrow.ListOf(arrow.ListOf(arrow.BinaryTypes.String)), 3},
		{arrow.FixedSizeListOf(3, arrow.ListOf(arrow.PrimitiveTypes.Int8)), 3},
		{arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), 4},
	} {
		b := batchOf(m.Data(c.typ, 5000))
		g := newGatherer(t, b.Schema(), b)
		rows := make([]Row, 4096)
		for i := range rows {
			rows[i].Row = int32(r.Intn(5000))
		}
		allocs := testing.AllocsPerRun(50, func() {
			if _, err := g.Select(rows); err != nil {
				t.Fatal(err)
			}
			l, err := g.Gather(w.pool, w.grant, budget.Batches)
			if err != nil {
				t.Fatal(err)
			}
			l.Release()
		})
		if most := 10 + 7*c.arrays; allocs > most {
			t.Errorf("%s: %v allocations, %v are headers", c.typ, allocs, most)
		}
		g.Drop(0)
	}
}
