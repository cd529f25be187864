package sampler

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hashCase is a plan in stored order with ranges of rows, and what the rules make of them.
type hashCase struct {
	Snapshot string     `json:"snapshot"`
	Shards   []int      `json:"shards"`
	Ranges   [][2]int64 `json:"ranges"`
	Hash     string     `json:"hash,omitempty"`
	Sum      string     `json:"sum,omitempty"`
}

func (c hashCase) check(t *testing.T) {
	t.Helper()
	hash := Plan{Snapshot: c.Snapshot, Shards: c.Shards}.Hash()
	if got := hex.EncodeToString(hash[:]); got != c.Hash {
		t.Errorf("plan of %v: %s, want %s", c.Shards, got, c.Hash)
	}
	var sum Sum
	for _, r := range c.Ranges {
		sum = NewSummer(c.Snapshot).AddRange(sum, r[0], r[1])
	}
	if sum.String() != c.Sum {
		t.Errorf("sum of %v: %s, want %s", c.Ranges, sum, c.Sum)
	}
}

// permutationCase is a key's permutation at some places.
type permutationCase struct {
	Seed    uint64  `json:"seed"`
	Epoch   uint64  `json:"epoch"`
	Purpose string  `json:"purpose"`
	Items   int64   `json:"items"`
	At      []int64 `json:"at"`
	Key     string  `json:"key,omitempty"`
	To      []int64 `json:"to,omitempty"`
}

func (c permutationCase) check(t *testing.T) {
	t.Helper()
	k := newKey(c.Seed, c.Epoch, []byte(c.Purpose))
	if got := hex.EncodeToString(k[:]); got != c.Key {
		t.Errorf("%s: key %s, want %s", c.Purpose, got, c.Key)
	}
	p := newPermutation(k, c.Items)
	q := p.Inverse()
	for i, at := range c.At {
		if got := p.At(at); got != c.To[i] || q.At(got) != at {
			t.Errorf("%s: %d of %d goes to %d, want %d", c.Purpose, at, c.Items, got, c.To[i])
		}
	}
}

// orderCase is a plan on a layout, with one epoch of it and how that is cut from its row Start on.
type orderCase struct {
	Snapshot     string       `json:"snapshot"`
	Shards       []int        `json:"shards"`
	Layout       []layoutCase `json:"layout"`
	Split        []uint64     `json:"split"` // seed, from, to
	Shuffle      string       `json:"shuffle"`
	WindowBlocks int64        `json:"window_blocks"`
	Groups       int64        `json:"groups"`
	Seed         uint64       `json:"seed"`
	Epoch        int64        `json:"epoch"`
	Cut          struct {
		Batch     int64  `json:"batch"`
		Tail      string `json:"tail"`
		Start     int64  `json:"start"`
		WorldSize int64  `json:"world_size"`
	} `json:"cut"`
	Hash    string      `json:"hash,omitempty"`
	Windows [][][]int   `json:"windows,omitempty"` // of each window of each span, its blocks
	Order   []int64     `json:"order,omitempty"`   // the row at each position
	Sum     string      `json:"sum,omitempty"`
	Steps   [][][]int64 `json:"steps,omitempty"` // what each rank takes of each step
}

type layoutCase struct {
	Identity string     `json:"identity"`
	Row      int64      `json:"row"`
	Segments [][2]int64 `json:"segments"` // rows, blocks
}

func (c *orderCase) dataset() dataset {
	d := dataset{plan: Plan{
		Snapshot: c.Snapshot, Shards: c.Shards, WindowBlocks: c.WindowBlocks, Groups: c.Groups, Seed: c.Seed,
		Shuffle: Shuffle(slices.Index([]string{"none", "window", "full"}, c.Shuffle)),
	}}
	if c.Split != nil {
		d.plan.Split = &Split{Seed: c.Split[0], From: uint32(c.Split[1]), To: uint32(c.Split[2])}
	}
	for _, sh := range c.Layout {
		shard := Shard{Identity: sh.Identity, Row: sh.Row}
		for _, seg := range sh.Segments {
			shard.Segments = append(shard.Segments, Segment{seg[0], seg[1]})
		}
		d.shards = append(d.shards, shard)
	}
	return d
}

func (c *orderCase) schedule(t *testing.T, o *Order) *Schedule {
	t.Helper()
	tail := Tail(slices.Index([]string{"keep", "drop", "pad"}, c.Cut.Tail))
	s, err := NewSchedule(o, Cut{Batch: c.Cut.Batch, Tail: tail, Start: Place{c.Epoch, c.Cut.Start}, End: c.Epoch + 1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *orderCase) check(t *testing.T) {
	t.Helper()
	d := c.dataset()
	o := d.order(t)
	e := o.Epoch(c.Epoch)
	hash := d.plan.Hash()
	var windows [][][]int
	for span := range e.Spans() {
		windows = append(windows, nil)
		for w := range e.Windows(span) {
			var blocks []int
			for _, p := range e.Pieces(span, w) {
				blocks = append(blocks, p.Block)
			}
			windows[span] = append(windows[span], blocks)
		}
	}
	sum, err := e.Sum(t.Context(), c.Snapshot, 0, o.Rows())
	if err != nil {
		t.Fatal(err)
	}
	var steps [][][]int64
	s, r := c.schedule(t, o), reader{epoch: e}
	for k := range s.Count() {
		steps = append(steps, nil)
		for rank := range c.Cut.WorldSize {
			rows, _ := r.share(s.Step(k), rank, c.Cut.WorldSize)
			steps[k] = append(steps[k], append([]int64{}, rows...))
		}
	}
	for what, pair := range map[string][2]any{
		"hash":    {hex.EncodeToString(hash[:]), c.Hash},
		"windows": {append([][][]int{}, windows...), append([][][]int{}, c.Windows...)},
		"order":   {append([]int64{}, e.positions()...), append([]int64{}, c.Order...)},
		"sum":     {sum.String(), c.Sum},
		"steps":   {append([][][]int64{}, steps...), append([][][]int64{}, c.Steps...)},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Fatalf("%s is %v, want %v; of %+v", what, pair[0], pair[1], *c)
		}
	}
}

// cases is what derive.py reads and writes.
type cases struct {
	Hashes       []hashCase        `json:"hashes"`
	Permutations []permutationCase `json:"permutations"`
	Orders       []*orderCase      `json:"orders"`
}

func (all cases) check(t *testing.T) {
	t.Helper()
	for _, c := range all.Hashes {
		c.check(t)
	}
	for _, c := range all.Permutations {
		c.check(t)
	}
	for _, c := range all.Orders {
		c.check(t)
	}
}

// The vectors are kept in cursors, receipts and the order of rows out in the world: they never change.
func TestVectorsAreFrozen(t *testing.T) {
	var all cases
	for name, list := range map[string]any{"vectors": &all.Hashes, "permutations": &all.Permutations, "orders": &all.Orders} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, list); err != nil {
			t.Fatal(err)
		}
	}
	all.check(t)
}

// python finds the interpreter.
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

// A client must be able to check us without our code: thousands of random cases are derived from the written rules.
func TestPythonDerivesTheSame(t *testing.T) {
	interpreter := python(t)
	random := rand.New(rand.NewPCG(1, 2))
	var all cases
	for range 200 {
		all.Hashes = append(all.Hashes, randomHash(random))
	}
	for range 300 {
		all.Permutations = append(all.Permutations, randomPermutation(random))
	}
	for range 2000 {
		all.Orders = append(all.Orders, randomOrder(random))
	}
	all.Orders = append(all.Orders, largeOrder())
	input, err := json.Marshal(all)
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
	var derived cases
	if err := json.Unmarshal(out, &derived); err != nil {
		t.Fatal(err)
	}
	if len(derived.Orders) != len(all.Orders) {
		t.Fatalf("%d orders were derived, not %d", len(derived.Orders), len(all.Orders))
	}
	derived.check(t)
}

// largeOrder has more rows than a table holds.
func largeOrder() *orderCase {
	c := &orderCase{
		Shuffle: "full", Groups: 3, Shards: []int{0}, Layout: []layoutCase{{Segments: [][2]int64{{tableItems + 100, 7}}}},
	}
	c.Cut.Batch, c.Cut.Tail, c.Cut.WorldSize = 10_000, "keep", 2
	return c
}

// The page on the order is the specification: its code derives the vectors.
func TestDocumentedDerivationRuns(t *testing.T) {
	interpreter := python(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "order.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(text), "```python\n# runs\n")
	if !found {
		t.Fatal("the page has no code that runs")
	}
	code, _, _ = strings.Cut(code, "```")
	cmd := exec.Command(interpreter, "-c", code)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func randomID(random *rand.Rand) string {
	id := make([]byte, 32)
	for i := range id {
		id[i] = byte(random.Uint32())
	}
	return hex.EncodeToString(id)
}

func randomHash(random *rand.Rand) hashCase {
	c := hashCase{Snapshot: randomID(random), Shards: []int{}, Ranges: [][2]int64{}}
	for shard := range random.IntN(8) {
		c.Shards = append(c.Shards, shard*1000+random.IntN(1000))
	}
	for range random.IntN(4) {
		first := random.Int64N(1 << random.IntN(62))
		c.Ranges = append(c.Ranges, [2]int64{first, random.Int64N(300)})
	}
	return c
}

// randomPermutation draws sizes of every magnitude; tables, which take Python their whole length, are mostly small.
func randomPermutation(random *rand.Rand) permutationCase {
	c := permutationCase{
		Seed: random.Uint64(), Epoch: random.Uint64N(1 << 31), Purpose: "window/" + strconv.Itoa(random.IntN(1000)),
		Items: 1 + random.Int64N(1<<(1+random.IntN(10))),
	}
	if random.IntN(3) > 0 {
		c.Items = tableItems + 1 + random.Int64N(1<<(1+random.IntN(40)))
	}
	for range 20 {
		c.At = append(c.At, random.Int64N(c.Items))
	}
	return c
}

func randomOrder(random *rand.Rand) *orderCase {
	c := &orderCase{
		Snapshot: randomID(random), Shards: []int{}, Layout: []layoutCase{}, Groups: 1,
		Shuffle: []string{"none", "window", "window", "window", "full"}[random.IntN(5)], Epoch: random.Int64N(1 << random.IntN(32)),
	}
	row := int64(0)
	for i := range (1 + random.IntN(20)) % 5 {
		row += random.Int64N(100)
		sh := layoutCase{Identity: randomID(random), Row: row, Segments: [][2]int64{}}
		for range random.IntN(5) {
			rows := random.Int64N(1 + random.Int64N(100))
			sh.Segments = append(sh.Segments, [2]int64{rows, min(rows, 1+random.Int64N(1+random.Int64N(60)))})
			row += rows
		}
		c.Layout, c.Shards = append(c.Layout, sh), append(c.Shards, i*3)
	}
	if c.Shuffle != "none" {
		c.Seed, c.Groups = random.Uint64(), 1+random.Int64N(1<<random.IntN(9))
	}
	if c.Shuffle == "window" {
		c.WindowBlocks = 1 + random.Int64N(1<<random.IntN(8))
	}
	if random.IntN(2) == 0 {
		from := random.Uint64N(splitParts / 2)
		c.Split = []uint64{random.Uint64(), from, from + 1 + random.Uint64N(splitParts-from)}
	}
	c.Cut.Batch, c.Cut.Tail = 1+random.Int64N(1<<random.IntN(8)), []string{"keep", "drop", "pad"}[random.IntN(3)]
	c.Cut.WorldSize = 1 + random.Int64N(1<<random.IntN(5))
	if n := int64(len(c.dataset().rows())); n > 0 {
		c.Cut.Start = random.Int64N(n + 1)
		if c.Cut.Tail == "drop" {
			c.Cut.Batch = min(c.Cut.Batch, n)
		}
	}
	return c
}
