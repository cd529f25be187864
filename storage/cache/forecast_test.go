package cache

import (
	"math"
	"math/rand/v2"
	"testing"
)

// even is what is known of blocks of so many bytes.
func even(bytes int64) func(int) Size {
	return func(int) Size { return Size{Bytes: bytes, Claim: bytes} }
}

// readOne reads a block alone, with memory of its own.
func (f *Forecast) readOne(block int) (bytes int64, tier string) {
	r := f.Begin(1, func(int) int { return block }, -1)
	defer r.End()
	return r.Read(block)
}

// foresee reads passes of n blocks, each in an order of its own or always the same, and returns the part that is there in the last ones.
func foresee(t *testing.T, policy string, n int, c float64, shuffle bool, size func(int) Size) float64 {
	t.Helper()
	f, err := NewForecast(policy, true, n, size)
	if err != nil {
		t.Fatal(err)
	}
	f.Give(int64(c * float64(f.Bytes())))
	r := rand.New(rand.NewPCG(3, 4))
	order := r.Perm(n)
	var read, hits int64
	for pass := range 8 {
		if shuffle {
			order = r.Perm(n)
		}
		for _, block := range order {
			bytes, tier := f.readOne(block)
			if pass < 5 {
				continue
			}
			if read += bytes; tier == Memory {
				hits += bytes
			}
		}
	}
	return float64(hits) / float64(read)
}

// TestForecastsAreWhatTheFormulaeSay: of as many blocks as are followed, and of more.
func TestForecastsAreWhatTheFormulaeSay(t *testing.T) {
	uneven := func(block int) Size { return Size{Bytes: 1<<20 + int64(block%7)<<20} }
	for _, n := range []int{2000, 2*standIns + 3} {
		for _, c := range []float64{0, .1, .5, .9, 1} {
			for _, size := range []func(int) Size{even(1 << 22), uneven} {
				lru := 0.
				if c > 0 && c < 1 {
					lru = c + (1-c)*math.Log(1-c)
				} else if c == 1 {
					lru = 1
				}
				for _, p := range []struct {
					policy       string
					shuffle      bool
					want, within float64
				}{
					{Pinned, true, c, .001},
					{Pinned, false, c, .001},
					{Auto, true, c, .001},
					{LRU, true, lru, .015},
					{LRU, false, math.Floor(c), 0},
					{LFU, false, math.Floor(c), 0},
					{Adaptive, true, c, .17 * c},
					{Adaptive, false, c, .11 * c},
				} {
					if got := foresee(t, p.policy, n, c, p.shuffle, size); math.Abs(got-p.want) > p.within {
						t.Errorf("%d blocks, c = %.1f, %s, shuffled %v: %.4f, want %.4f", n, c, p.policy, p.shuffle, got, p.want)
					}
				}
			}
		}
	}
	if _, err := NewForecast("mru", true, 1, nil); err == nil {
		t.Error("a policy that is not was taken")
	}
	if f, err := NewForecast(Auto, false, 0, nil); err != nil || f.Policy() != Adaptive || f.Bytes() != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

// What is read ahead takes room from what is kept, at its most where all of a window is missing, and nothing of what that window
// finds there. Where it has memory of its own it takes none, but is kept only as far as there is room.
func TestForecastsMakeRoomForWhatIsReadAhead(t *testing.T) {
	for _, tt := range []struct {
		most       int64
		claim      int64
		hits, room int64
	}{
		{1 << 20, 10, 2, 20}, // the window before is in use while the next one is read
		{1 << 20, 15, 1, 10}, // as much is set aside as is asked for, until it is known what they take
		{-1, 15, 4, 40},
		{29, 15, 4, 40}, // there is not as much as is asked for: it waits for its own
	} {
		f, err := NewForecast(Pinned, true, 8, func(int) Size { return Size{Bytes: 10, Claim: tt.claim} })
		if err != nil {
			t.Fatal(err)
		}
		f.Give(40)
		for epoch := range int64(3) {
			hits := int64(0)
			for w := range 4 {
				r := f.Begin(2, func(i int) int { return 2*w + i }, tt.most)
				for block := 2 * w; block < 2*w+2; block++ {
					if _, tier := r.Read(block); tier == Memory {
						hits++
					}
				}
				r.End()
			}
			if room := f.Room(); room != tt.room || hits != tt.hits && epoch > 0 {
				t.Errorf("%+v, epoch %d: %d hits, room for %d bytes, with room for 4 blocks and windows of 2", tt, epoch, hits, room)
			}
		}
		if room := f.Room(); room != 40 || f.aside != 0 || f.beside != 0 {
			t.Errorf("room for %d bytes while nothing is read ahead; %+v", room, f)
		}
	}
}

// What is there for a window stays while that is read, whatever the policy, and so does what was loaded for it; what was loaded with
// memory of its own is given up first thing when there is no room.
func TestForecastsKeepWhatIsInUse(t *testing.T) {
	f, err := NewForecast(LRU, true, 4, even(10))
	if err != nil {
		t.Fatal(err)
	}
	f.Give(30)
	for block := range 3 {
		f.readOne(block)
	}
	first := f.Begin(2, func(i int) int { return 3 * i }, 10) // 0 is there, 3 is not: 1 goes
	second := f.Begin(3, func(i int) int { return i }, 10)    // 1 is not: nothing can go for it
	if first.Own() || first.Aside() != 10 || !second.Own() || second.Aside() != 0 {
		t.Errorf("%+v, %+v", first, second)
	}
	for block, want := range []string{Memory, "", Memory} {
		if _, tier := second.Read(block); tier != want {
			t.Errorf("block %d is in %q, not in %q", block, tier, want)
		}
	}
	if _, tier := first.Read(3); tier != "" {
		t.Errorf("block 3 is in %q", tier)
	}
	first.End()
	second.End()
	if f.used != 30 || f.aside != 0 || f.beside != 0 {
		t.Errorf("%+v", f)
	}
	f.Borrow(25)
	if room := f.Room(); f.used != 0 || room != 5 {
		t.Errorf("%d bytes are there, room for %d beside what is borrowed", f.used, room)
	}
	f.Borrow(0)
	if _, tier := f.readOne(0); tier != "" || f.used != 10 {
		t.Errorf("it is in %q, %d bytes are there", tier, f.used)
	}
}

// A disk below has what was loaded first, as far as it goes; beside memory, that is more only if it has room for more. What is
// not mapped there comes to memory by the policy's leave.
func TestForecastsOfADisk(t *testing.T) {
	const n = 2*standIns + 3
	for _, tt := range []struct {
		policy            string
		memory, disk      float64
		mapped            bool
		hits, onDisk, off float64
	}{
		{Pinned, .3, 0, true, .3, 0, .001},
		{Pinned, .3, .2, true, .3, 0, .001}, // the same blocks
		{Pinned, .3, .7, true, .3, .4, .001},
		{Pinned, .3, 2, true, .3, .7, .001},
		{Pinned, 0, .7, true, 0, .7, .001},
		{Pinned, .3, 2, false, .3, .7, .001},
		{LRU, .3, 2, true, .3, .7, .001}, // what came last in the first pass stays: nothing else comes
		{LRU, .3, 2, false, .3 + .7*math.Log(.7), .7 - .7*math.Log(.7), .015},
		{Adaptive, .3, 2, true, .3, .7, .001},
	} {
		f, err := NewForecast(tt.policy, true, n, even(1<<22))
		if err != nil {
			t.Fatal(err)
		}
		f.Give(int64(tt.memory * float64(f.Bytes())))
		f.GiveDisk(int64(tt.disk*float64(f.Bytes())), tt.mapped)
		r := rand.New(rand.NewPCG(5, 6))
		read := map[string]float64{}
		for pass := range 8 {
			if pass == 5 {
				clear(read)
			}
			for _, block := range r.Perm(n) {
				bytes, tier := f.readOne(block)
				read[tier] += float64(bytes)
			}
		}
		all := read[Memory] + read[Disk] + read[""]
		if math.Abs(read[Memory]/all-tt.hits) > tt.off || math.Abs(read[Disk]/all-tt.onDisk) > tt.off {
			t.Errorf("%+v: %.4f in memory, %.4f on disk", tt, read[Memory]/all, read[Disk]/all)
		}
	}
}

// Of what lies in mapped files nothing is kept or fetched.
func TestForecastsOfMappedFiles(t *testing.T) {
	f, err := NewForecast(Pinned, true, 100, func(block int) Size { return Size{Bytes: 1 << 20, InPlace: block%4 == 0} })
	if err != nil || f.Bytes() != 75<<20 || f.InPlace() != 25<<20 {
		t.Fatal(f.Bytes(), f.InPlace(), err)
	}
	f.Give(30 << 20)
	f.GiveDisk(50<<20, true)
	read := map[string]int64{}
	for range 2 {
		clear(read)
		for block := range 100 {
			bytes, tier := f.readOne(block)
			read[tier] += bytes
		}
	}
	if read[Memory] != 30<<20 || read[Disk] != 20<<20 || read[""] != 25<<20 {
		t.Errorf("%v", read)
	}
}
