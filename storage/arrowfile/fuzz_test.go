package arrowfile

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/storage/snapshot"
)

// Whatever the bytes are: rows, or an error of a known class; no panic, no
// memory left, and no more of it than the test's limit.
func FuzzFile(f *testing.F)   { fuzz(f, ".file") }
func FuzzStream(f *testing.F) { fuzz(f, ".stream") }

func fuzz(f *testing.F, kind string) {
	entries, err := os.ReadDir("testdata/golden")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), kind) {
			f.Add(golden(f, e.Name()))
		}
	}
	y := newYard(f)
	f.Fuzz(func(t *testing.T, b []byte) { y.try(t, b) })
}

// FuzzDictionaries puts its input between the schema of a file with
// dictionaries and the end: dictionary messages, their bodies, and batches of
// indices, which fuzzing gets further into when it cannot spoil the schema.
func FuzzDictionaries(f *testing.F) {
	var heads [][]byte
	for _, name := range []string{"dictionaries.file", "deltas.stream"} {
		whole := golden(f, name)
		_, sh := newHouse(f, "testdata/golden").describe(f, name)
		from, first, end := int64(0), int64(math.MaxInt64), int64(0)
		if sh.Format == snapshot.Arrow {
			from = head
		}
		var batches []byte
		for _, s := range sh.Segments {
			p := s.Facts.(Batch).Place
			first, end = min(first, p.Offset), max(end, p.end())
			batches = append(batches, whole[p.Offset:p.end()]...)
		}
		var dictionaries []byte
		for _, p := range sh.Facts.(*Facts).Dictionaries {
			first, end = min(first, p.Offset), max(end, p.end())
			dictionaries = append(dictionaries, whole[p.Offset:p.end()]...)
		}
		f.Add(byte(len(heads)), whole[first:end], []byte{})
		f.Add(byte(len(heads)), dictionaries, batches)
		heads = append(heads, whole[from:first])
	}
	y := newYard(f)
	f.Fuzz(func(t *testing.T, schema byte, dictionaries, batches []byte) {
		y.try(t, slices.Concat(heads[int(schema)%len(heads)], dictionaries, batches))
	})
}

// try reads b, whatever it is, and checks that all memory came back.
func (y *yard) try(t *testing.T, b []byte) {
	t.Helper()
	_, _ = y.read(t, b)
	if used := y.ledger.Stats().Used; len(used) != 0 {
		t.Errorf("memory is still in use: %v", used)
	}
}
