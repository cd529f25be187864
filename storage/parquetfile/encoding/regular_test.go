package encoding

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestListsRegular reads lists of one size by either way, over pages that end anywhere, and behind pages that were passed.
func TestListsRegular(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, n := rapid.IntRange(1, 90).Draw(t, "size"), rapid.IntRange(1, 400).Draw(t, "n")
		rep, def := make([]uint32, n), slices.Repeat([]uint32{3}, n)
		for i := range rep {
			rep[i] = min(1, uint32(i%size))
		}
		odd := rapid.IntRange(0, 2*n).Draw(t, "odd")
		if odd < n {
			def[odd] = 2
		}
		var l Lists
		must(t, l.Reset(Shape{Most: 3, List: 1, Slot: 2, Item: 3}))
		at := rapid.IntRange(0, n-1).Draw(t, "passed")
		if at > 0 {
			l.Passed()
		}
		for at < n {
			k := rapid.IntRange(1, n-at).Draw(t, "page")
			var r, d Levels
			must(t, r.Reset(fenced(t, hybrid(nil, rep[at:at+k], 1)), 1))
			must(t, d.Reset(fenced(t, hybrid(nil, def[at:at+k], 2)), 3))
			l.Page(r, d, k)
			regular, err := l.Regular(k, size, at%size)
			must(t, err)
			if want := odd < at || odd >= at+k; regular != want {
				t.Fatalf("%v of %d pairs from %d on; %d is odd", regular, k, at, odd)
			}
			if !regular { // it has stayed
				c, err := DecodeLists(&l, k, ListsInto[int32]{})
				must(t, err)
				if c.Levels != k || c.Slots != k || c.Stored != k-1 {
					t.Fatalf("%d pairs with one null are %+v", k, c)
				}
			}
			if l.Left() != 0 {
				t.Fatalf("%d pairs are left", l.Left())
			}
			at += k
		}
	})
}
