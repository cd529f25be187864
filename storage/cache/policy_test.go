package cache

import (
	"bufio"
	"compress/gzip"
	"container/heap"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// simulate runs requests for blocks of one byte against a policy that has room
// for so many, and tells which were hits.
func simulate(p Policy, trace []int, capacity int) []bool {
	plan := &Plan{}
	plan.streams.Store(1)
	items, hits, resident := map[int]*item{}, make([]bool, len(trace)), 0
	for n, key := range trace {
		i := items[key]
		if i == nil {
			i = &item{hash: mixed(uint64(key)), bytes: 1}
			i.plan.Store(plan)
			items[key] = i
		}
		hits[n] = i.list != nil
		p.Use(i)
		if !hits[n] {
			resident++
		}
		for ; resident > capacity; resident-- {
			p.Remove(p.Victim())
		}
	}
	return hits
}

// ratio is of hits to requests.
func ratio(hits []bool) float64 {
	n := 0
	for _, hit := range hits {
		if hit {
			n++
		}
	}
	return float64(n) / float64(len(hits))
}

// oracle keeps what is needed soonest: no policy can have more hits.
func oracle(trace []int, capacity int) []bool {
	trace, blocks := dense(trace)
	next := nextNeeds(trace, blocks)
	hits, resident, order := make([]bool, len(trace)), 0, &furthest{}
	until := make([]int, blocks) // when a resident block is needed next
	for n, key := range trace {
		if hits[n] = until[key] > 0; !hits[n] {
			resident++
		}
		until[key] = next[n]
		heap.Push(order, need{key, next[n]})
		for resident > capacity {
			if far := heap.Pop(order).(need); until[far.key] == far.at { // else it was needed since
				until[far.key] = 0
				resident--
			}
		}
	}
	return hits
}

// dense numbers the blocks of a trace from 0 on.
func dense(trace []int) (same []int, blocks int) {
	numbers := map[int]int{}
	same = make([]int, len(trace))
	for n, key := range trace {
		if _, ok := numbers[key]; !ok {
			numbers[key] = len(numbers)
		}
		same[n] = numbers[key]
	}
	return same, len(numbers)
}

// nextNeeds tells for each request when its block is asked for again.
func nextNeeds(trace []int, blocks int) []int {
	next, last := make([]int, len(trace)), make([]int, blocks)
	for n := len(trace) - 1; n >= 0; n-- {
		if next[n] = last[trace[n]]; next[n] == 0 { // nothing is needed again at the first request
			next[n] = math.MaxInt
		}
		last[trace[n]] = n
	}
	return next
}

type need struct{ key, at int }

type furthest []need

func (f furthest) Len() int           { return len(f) }
func (f furthest) Less(i, j int) bool { return f[i].at > f[j].at }
func (f furthest) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *furthest) Push(x any)        { *f = append(*f, x.(need)) }
func (f *furthest) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// readTrace returns the requests of a trace, and a quarter of how many blocks it has.
func readTrace(t testing.TB, name string) (trace []int, quarter int) {
	t.Helper()
	root := os.Getenv("HEADRACE_CORPORA")
	if root == "" {
		t.Skip("HEADRACE_CORPORA names no folder with traces")
	}
	f, err := os.Open(filepath.Join(root, "traces", name+".trace.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	unique := map[int]bool{}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		key, err := strconv.Atoi(lines.Text())
		if err != nil {
			continue // some begin with a mark
		}
		trace = append(trace, key)
		unique[key] = true
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return trace, len(unique) / 4
}

// golden are what an independent simulator found.
var golden = []struct {
	trace             string
	requests          int
	lru, opt, atLeast float64
}{
	{"multi1", 15858, .4724, .6260, 0},
	{"multi2", 26311, .4828, .6856, 0},
	{"multi3", 30241, .4451, .6751, 0},
	{"2_pools", 100000, .6156, .7776, 0},
	{"sprite", 133996, .9325, .9441, .925},
	{"cpp", 9047, .8360, .8648, 0},
	{"gli", 6015, .0115, .4221, .40},
	{"ps", 10448, .4855, .6328, 0},
}

func TestGoldenHitRatios(t *testing.T) {
	for _, g := range golden {
		t.Run(g.trace, func(t *testing.T) {
			trace, capacity := readTrace(t, g.trace)
			if len(trace) != g.requests {
				t.Fatalf("%d requests", len(trace))
			}
			if got := ratio(simulate(&lru{}, trace, capacity)); math.Round(got*1e4)/1e4 != g.lru {
				t.Errorf("lru %.4f, not %.4f", got, g.lru)
			}
			if got := ratio(oracle(trace, capacity)); math.Round(got*1e4)/1e4 != g.opt {
				t.Errorf("the oracle %.4f, not %.4f", got, g.opt)
			}
			if got := ratio(simulate(newAdaptive(), trace, capacity)); got < max(g.lru-.01, g.atLeast) {
				t.Errorf("adaptive %.4f, lru %.4f, at least %.3f", got, g.lru, g.atLeast)
			}
		})
	}
}

// passes is so many epochs over n blocks: in a new order each, or always the same.
func passes(n, epochs int, shuffle bool) []int {
	r := rand.New(rand.NewPCG(1, 7))
	var all []int
	order := r.Perm(n)
	for range epochs {
		if shuffle {
			order = r.Perm(n)
		}
		all = append(all, order...)
	}
	return all
}

// TestEpochs: of a pass over all blocks, in whatever order, pinned has what fits,
// LRU what the closed form says or nothing, and adaptive nearly what fits.
func TestEpochs(t *testing.T) {
	const n, epochs = 4000, 16
	for _, c := range []float64{.1, .25, .5, .75, .9} {
		capacity := int(c * n)
		for _, shuffle := range []bool{false, true} {
			trace := passes(n, epochs, shuffle)
			if got := ratio(simulate(newPinned(), trace, capacity)[n:]); got != float64(capacity)/n {
				t.Errorf("c = %.2f, shuffled %v: pinned %.4f", c, shuffle, got)
			}
			want := 0.
			if shuffle {
				want = c + (1-c)*math.Log(1-c)
			}
			if got := ratio(simulate(&lru{}, trace, capacity)[n:]); math.Abs(got-want) > .005 {
				t.Errorf("c = %.2f, shuffled %v: lru %.4f, not %.4f", c, shuffle, got, want)
			}
			if got := ratio(simulate(newAdaptive(), trace, capacity)[4*n:]); got < .9*c {
				t.Errorf("c = %.2f, shuffled %v: adaptive %.4f", c, shuffle, got)
			}
			if got := ratio(oracle(trace, capacity)[2*n:]); math.Abs(got-c) > .01 {
				t.Errorf("c = %.2f, shuffled %v: the oracle %.4f", c, shuffle, got)
			}
		}
	}
}

// jobs is as many passes over n blocks by each of several jobs, which take turns, each in new orders of its own and so far
// on as its place among them is.
func jobs(n, epochs, count int) []int {
	r := rand.New(rand.NewPCG(5, 11))
	orders := make([][]int, count)
	for j := range orders {
		skip := j * n / count
		for len(orders[j]) < epochs*n+skip {
			orders[j] = append(orders[j], r.Perm(n)...)
		}
		orders[j] = orders[j][skip:]
	}
	var all []int
	for at := range epochs * n {
		for j := range orders {
			all = append(all, orders[j][at])
		}
	}
	return all
}

// needed is what the oracle has of blocks that are needed very often in an epoch, each time at random: 1 - e^-x, where
// c = 1 - (1+x) e^-x.
func needed(c float64) float64 {
	low, high := 0., 50.
	for range 100 {
		if x := (low + high) / 2; 1-(1+x)*math.Exp(-x) < c {
			low = x
		} else {
			high = x
		}
	}
	return 1 - math.Exp(-low)
}

// TestManyJobs: what several jobs over the same blocks have with an oracle. For two and for sixteen of them another
// simulator's numbers, for many a closed form.
func TestManyJobs(t *testing.T) {
	for _, many := range []struct {
		jobs, blocks, epochs int
		want                 map[float64]float64
	}{
		{2, 4000, 8, map[float64]float64{.1: .322, .5: .728, .9: .950}},
		{16, 4000, 4, map[float64]float64{.1: .400, .5: .802, .9: .977}},
		{64, 6000, 1, map[float64]float64{.1: needed(.1), .5: needed(.5), .9: needed(.9)}},
	} {
		trace := jobs(many.blocks, many.epochs, many.jobs)
		for c, want := range many.want {
			hits := oracle(trace, int(c*float64(many.blocks)))
			quarter := len(hits) / 4 // in the first the cache fills, from the last on the end is seen
			if got := ratio(hits[quarter : 3*quarter]); math.Abs(got-want) > .01 {
				t.Errorf("%d jobs, c = %.1f: %.4f, not %.4f", many.jobs, c, got, want)
			}
		}
	}
}

// TestAdaptiveOnOneShuffledJob is the number that has to be beaten with half of the data.
func TestAdaptiveOnOneShuffledJob(t *testing.T) {
	const n = 10000
	if got := ratio(simulate(newAdaptive(), passes(n, 20, true), n/2)[5*n:]); got < .46 {
		t.Errorf("%.4f", got)
	}
}

// TestSkewAndScans: some data is always hot while a job passes over other data.
func TestSkewAndScans(t *testing.T) {
	const n = 4000
	r := rand.New(rand.NewPCG(3, 3))
	z := rand.NewZipf(r, 1.01, 1, n-1)
	var trace []int
	for i := range 60 * n {
		trace = append(trace, int(z.Uint64()), n+i%n)
	}
	lru, got := ratio(simulate(&lru{}, trace, n)), ratio(simulate(newAdaptive(), trace, n))
	if got < lru+.1 {
		t.Errorf("adaptive %.4f, lru %.4f", got, lru)
	}
}

// TestOracleIsOptimal compares it with all there is to choose, where that is little.
func TestOracleIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 14).Draw(t, "trace")
		capacity := rapid.IntRange(1, 4).Draw(t, "capacity")
		hits := 0
		for _, hit := range oracle(trace, capacity) {
			if hit {
				hits++
			}
		}
		if want := best(trace, 0, capacity, map[state]int{}); hits != want {
			t.Fatalf("%d hits, not %d", hits, want)
		}
	})
}

type state struct {
	at       int
	resident uint8 // a bit for each block
}

// best tries everything.
func best(trace []int, resident uint8, capacity int, known map[state]int) (most int) {
	if len(trace) == 0 {
		return 0
	}
	s := state{len(trace), resident}
	if n, ok := known[s]; ok {
		return n
	}
	defer func() { known[s] = most }()
	bit := uint8(1) << trace[0]
	if resident&bit != 0 {
		return 1 + best(trace[1:], resident, capacity, known)
	}
	most = best(trace[1:], resident, capacity, known)
	for out := range 8 {
		with := resident&^(1<<out) | bit
		if n := 0; with != 0 {
			for b := with; b != 0; b &= b - 1 {
				n++
			}
			if n <= capacity {
				most = max(most, best(trace[1:], with, capacity, known))
			}
		}
	}
	return most
}

// TestMoreMemoryNeverMeansMoreMisses holds for LRU and the oracle.
func TestMoreMemoryNeverMeansMoreMisses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 400).Draw(t, "trace")
		capacity := rapid.IntRange(1, 40).Draw(t, "capacity")
		if ratio(simulate(&lru{}, trace, capacity)) > ratio(simulate(&lru{}, trace, capacity+1)) {
			t.Fatal("lru")
		}
		if ratio(oracle(trace, capacity)) > ratio(oracle(trace, capacity+1)) {
			t.Fatal("the oracle")
		}
	})
}

// TestPoliciesAgreeWithPlainOnes compares with the plainest form of each.
func TestPoliciesAgreeWithPlainOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := rapid.SliceOfN(rapid.IntRange(0, 12), 1, 200).Draw(t, "trace")
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		for name, worse := range map[string]func(a, b *plain) bool{
			LRU:    func(a, b *plain) bool { return a.used < b.used },
			LFU:    func(a, b *plain) bool { return a.uses < b.uses || a.uses == b.uses && a.used < b.used },
			Pinned: func(a, b *plain) bool { return a.came > b.came },
		} {
			got := simulate(policies[name](), trace, capacity)
			for n, hit := range plainly(trace, capacity, worse) {
				if got[n] != hit {
					t.Fatalf("%s: request %d for %d: hit %v, not %v", name, n, trace[n], got[n], hit)
				}
			}
		}
	})
}

// plain is what is known of a resident block.
type plain struct{ key, came, used, uses int }

// plainly runs a policy that gives up what is worse than all others.
func plainly(trace []int, capacity int, worse func(a, b *plain) bool) (hits []bool) {
	resident := map[int]*plain{}
	for n, key := range trace {
		p := resident[key]
		hits = append(hits, p != nil)
		if p == nil {
			p = &plain{key: key, came: n}
			resident[key] = p
		}
		p.used, p.uses = n, p.uses+1
		if len(resident) > capacity {
			var worst *plain
			for _, o := range resident {
				if worst == nil || worse(o, worst) {
					worst = o
				}
			}
			delete(resident, worst.key)
		}
	}
	return hits
}

// TestVictims: whatever the policy, a victim is one that it has and that is not
// leased, until there is none.
func TestVictims(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkVictims(t, policy()) })
		})
	}
}

func checkVictims(t *rapid.T, p Policy) {
	plans := []*Plan{{}, {}, {}}
	items := make([]*item, 20)
	for i := range items {
		items[i] = &item{hash: mixed(uint64(i)), bytes: int64(i % 5)}
		items[i].plan.Store(plans[0])
	}
	resident := map[*item]bool{}
	t.Repeat(map[string]func(*rapid.T){
		"use": func(t *rapid.T) {
			i := rapid.SampledFrom(items).Draw(t, "item")
			i.plan.Store(rapid.SampledFrom(plans).Draw(t, "plan"))
			p.Use(i)
			resident[i] = true
		},
		"lease": func(t *rapid.T) {
			i := rapid.SampledFrom(items).Draw(t, "item")
			i.leases.Store(1 - i.leases.Load())
		},
		"plan": func(t *rapid.T) {
			plan := rapid.SampledFrom(plans).Draw(t, "plan")
			plan.streams.Store(1 - plan.streams.Load())
		},
		"victim": func(t *rapid.T) {
			free := 0
			for i := range resident {
				if !i.leased() {
					free++
				}
			}
			v := p.Victim()
			if (v == nil) != (free == 0) {
				t.Fatalf("victim %v of %d", v, free)
			}
			if v == nil {
				return
			}
			if !resident[v] || v.leased() {
				t.Fatalf("resident %v, leased %v", resident[v], v.leased())
			}
			p.Remove(v)
			delete(resident, v)
		},
		"": func(t *rapid.T) {
			for _, i := range items {
				if (i.list != nil) != resident[i] {
					t.Fatal("the policy has another idea of what is resident")
				}
			}
		},
	})
}

// TestPinnedGivesUpFirstWhatNoPlanUses, and lets the next plan take over what it uses.
func TestPinnedGivesUpFirstWhatNoPlanUses(t *testing.T) {
	p, old, young := newPinned(), &Plan{}, &Plan{}
	old.streams.Store(1)
	young.streams.Store(1)
	put := func(plan *Plan) *item {
		i := &item{bytes: 1}
		i.plan.Store(plan)
		p.Use(i)
		return i
	}
	first, second, third := put(old), put(old), put(young)
	if v := p.Victim(); v != third {
		t.Fatal("not the newest, while both plans are live")
	}
	old.streams.Store(0)
	if v := p.Victim(); v != first {
		t.Fatal("not the oldest of those that no plan uses")
	}
	first.plan.Store(young)
	p.Use(first)
	if v := p.Victim(); v != second {
		t.Fatal("what a live plan has taken over went before what it has not")
	}
	p.Remove(second)
	if v := p.Victim(); v != first { // the last that came to it
		t.Fatal("what was taken over is not of the new plan")
	}
}

// TestBookkeepingIsSmall counts all that a policy has for an item, after enough
// requests for its counters and memories to be full.
func TestBookkeepingIsSmall(t *testing.T) {
	for name, policy := range policies {
		if each := bookkeeping(policy()); each >= 200 || each < 50 {
			t.Errorf("%s: %d bytes for each block", name, each)
		}
	}
}

// bookkeeping is what a policy has for each block, in bytes.
func bookkeeping(p Policy) uint64 {
	const n = 1 << 16
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	items := passesOver(p, n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(items)
	runtime.KeepAlive(p)
	return (after.HeapAlloc - before.HeapAlloc) / n
}

// passesOver uses twice as many items as stay resident.
func passesOver(p Policy, n int) []item {
	items, resident, plan := make([]item, n), 0, &Plan{}
	for round := range 3 {
		for k := range 2 * n {
			i := &items[k%n]
			if i.list == nil {
				i.hash, i.bytes = mixed(uint64(k)), 1
				i.plan.Store(plan)
				resident++
			}
			p.Use(i)
			if resident > n-n/8 && round > 0 {
				p.Remove(p.Victim())
				resident--
			}
		}
	}
	return items
}
