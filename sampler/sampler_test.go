package sampler

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// derivation is one case, and what the rules make of it.
type derivation struct {
	Snapshot string     `json:"snapshot"`
	Shards   []int      `json:"shards"`
	Ranges   [][2]int64 `json:"ranges"`
	Hash     string     `json:"hash,omitempty"`
	Sum      string     `json:"sum,omitempty"`
}

func (d derivation) check(t *testing.T) {
	t.Helper()
	hash := Plan{Snapshot: d.Snapshot, Shards: d.Shards}.Hash()
	if got := hex.EncodeToString(hash[:]); got != d.Hash {
		t.Errorf("plan of %v: %s, want %s", d.Shards, got, d.Hash)
	}
	var sum Sum
	for _, r := range d.Ranges {
		sum = NewSummer(d.Snapshot).AddRange(sum, r[0], r[1])
	}
	if sum.String() != d.Sum {
		t.Errorf("sum of %v: %s, want %s", d.Ranges, sum, d.Sum)
	}
}

// The vectors are kept in cursors and receipts out in the world: they never change.
func TestVectorsAreFrozen(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []derivation
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		d.check(t)
	}
}

// python finds the interpreter that has numpy.
func python(t *testing.T) string {
	if named, ok := os.LookupEnv("HEADRACE_PYTHON"); ok {
		return named
	}
	path, err := filepath.Abs(filepath.Join("..", ".venv", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no .venv, and HEADRACE_PYTHON is not set")
	}
	return path
}

// A client must be able to check us without our code.
func TestPythonDerivesTheSame(t *testing.T) {
	interpreter := python(t)
	random := rand.New(rand.NewPCG(1, 2))
	cases := make([]derivation, 200)
	for i := range cases {
		id := make([]byte, 32)
		for j := range id {
			id[j] = byte(random.Uint32())
		}
		cases[i] = derivation{Snapshot: hex.EncodeToString(id), Shards: []int{}, Ranges: [][2]int64{}}
		for shard := range random.IntN(8) {
			cases[i].Shards = append(cases[i].Shards, shard*1000+random.IntN(1000))
		}
		for range random.IntN(4) {
			first := random.Int64N(1 << random.IntN(62))
			cases[i].Ranges = append(cases[i].Ranges, [2]int64{first, random.Int64N(300)})
		}
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(interpreter, filepath.Join("testdata", "derive.py"))
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var derived []derivation
	if err := json.Unmarshal(out, &derived); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		c.Hash, c.Sum = derived[i].Hash, derived[i].Sum
		c.check(t)
	}
}

func TestPlansDifferByEachPart(t *testing.T) {
	seen := make(map[[32]byte]bool)
	for _, p := range []Plan{
		{Snapshot: "a", Shards: []int{0, 1}}, {Snapshot: "b", Shards: []int{0, 1}}, {Snapshot: "a", Shards: []int{0}},
		{Snapshot: "a", Shards: []int{1}}, {Snapshot: "a"}, {}, {Snapshot: "a", Shards: []int{0, 2}},
	} {
		if h := p.Hash(); seen[h] {
			t.Errorf("%v has the hash of another plan", p)
		} else {
			seen[h] = true
		}
	}
}

// Rows are summed in any order and grouping: cut a range anywhere, add the pieces in any order.
func TestSumsAreAdditive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSummer(rapid.StringMatching("[0-9a-f]{64}").Draw(t, "snapshot"))
		first := rapid.Int64Range(0, math.MaxInt64-4000).Draw(t, "first")
		left, right := rapid.Int64Range(0, 2000).Draw(t, "left"), rapid.Int64Range(0, 2000).Draw(t, "right")
		start := Sum{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")}
		whole := s.AddRange(start, first, left+right)
		a, b := s.AddRange(Sum{}, first, left), s.AddRange(Sum{}, first+left, right)
		if got := start.Add(b).Add(a); got != whole {
			t.Fatalf("%s, want %s", got, whole)
		}
		if got := s.AddRange(s.AddRange(start, first+left, right), first, left); got != whole {
			t.Fatalf("%s, want %s", got, whole)
		}
	})
}

func TestSumWrapsAt128Bits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) Sum {
			return Sum{Hi: rapid.Uint64().Draw(t, label), Lo: rapid.Uint64().Draw(t, label)}
		}
		a, b := draw("a"), draw("b")
		n := func(s Sum) *big.Int { v, _ := new(big.Int).SetString(s.String(), 16); return v }
		want := new(big.Int).Add(n(a), n(b))
		want.And(want, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)))
		if n(a.Add(b)).Cmp(want) != 0 || len(a.Add(b).String()) != 32 {
			t.Fatalf("%s + %s = %s", a, b, a.Add(b))
		}
	})
}

// Every way to cut covers the rows once, in order, and finds its own borders and no others.
func TestStepsCoverTheRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 5), 0, 12).Draw(t, "blocks")
		var starts []int64
		var rows int64
		for _, n := range sizes {
			starts, rows = append(starts, rows), rows+n
		}
		batch := rapid.Int64Range(1, 12).Draw(t, "batch")
		covers(t, Blocks(rows, len(starts), func(i int) int64 { return starts[i] }), rows, 0)
		kept, err := Batches(rows, batch, Keep)
		if err != nil {
			t.Fatal(err)
		}
		covers(t, kept, rows, 0)
		dropped, err := Batches(rows, batch, Drop)
		if short := rows > 0 && rows < batch; short != errors.Is(err, ErrShort) {
			t.Fatalf("%d rows by %d: %v", rows, batch, err)
		}
		if err == nil {
			covers(t, dropped, rows, rows%batch)
		}
	})
}

func covers(t *rapid.T, s Steps, rows, dropped int64) {
	borders := map[int64]int64{0: 0}
	var at int64
	for i := range s.Count() {
		from, to := s.Step(i)
		if from != at || to <= from {
			t.Fatalf("step %d is [%d,%d), after %d", i, from, to, at)
		}
		at = to
		borders[to] = i + 1
	}
	if at != rows-dropped || s.Rows() != at || s.Dropped() != dropped {
		t.Fatalf("steps end at %d of %d rows; Rows %d, Dropped %d", at, rows, s.Rows(), s.Dropped())
	}
	for place := int64(-1); place <= rows+1; place++ {
		step, err := s.Find(place)
		want, border := borders[place]
		if border != (err == nil) || border && step != want || !border && !errors.Is(err, ErrBorder) {
			t.Fatalf("Find(%d) = %d, %v; border %v, step %d", place, step, err, border, want)
		}
	}
}

// Cursors come from clients: no number of theirs may overflow.
func TestFindTakesAnyNumber(t *testing.T) {
	s, err := Batches(10, math.MaxInt32, Keep)
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int64{math.MinInt64, -1, 1, 9, 11, math.MaxInt64} {
		if _, err := s.Find(rows); !errors.Is(err, ErrBorder) {
			t.Errorf("%d: %v", rows, err)
		}
	}
}

func BenchmarkAddRange(b *testing.B) {
	s := NewSummer(strings.Repeat("0", 64))
	var sum Sum
	for b.Loop() {
		sum = s.AddRange(sum, 12345, 1000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
}
