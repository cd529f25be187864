package cache

import (
	"fmt"
	"unsafe"
)

// Forecast finds out what a policy would make of reading blocks in some order. It has none of them: it asks the policy
// itself, about as many of the blocks as tell enough.
type Forecast struct {
	policy  Policy
	name    string
	items   []item  // of the blocks that stand for all
	claims  []int64 // bytes that are asked for when those are read
	every   int     // one in so many does
	bytes   int64   // of those, but for what lies in mapped files
	inPlace int64   // of those that do

	room     int64 // for those
	used     int64 // by what is there
	beside   int64 // of that, what others pay for while they use it
	aside    int64 // of the room, what is set aside for blocks that are being read
	borrowed int64 // of the room, what decoders have
	least    int64 // of the room without what is set aside or borrowed

	below  []bool // those that lie on the disk below
	left   int64  // bytes that are free there
	mapped bool   // what lies there is shown from there
}

// Reading is blocks that are read, and in use, together.
type Reading struct {
	forecast *Forecast
	held     []*item
	own      bool  // whoever reads pays for what is loaded, until End
	loaded   int64 // bytes, if so
	whole    int64 // bytes of the room that were set aside, if not
	aside    int64 // of those, what is not loaded
}

// standIns is how many blocks are followed at most.
const standIns = 1 << 14

// ForecastBytes is the memory that a forecast of so many blocks takes.
func ForecastBytes(blocks int) int64 {
	return int64(min(blocks, standIns)) * (int64(unsafe.Sizeof(item{})) + 8 + 1)
}

// Size is what is known of a block: the bytes that it has, those that are asked for before it is read, and whether it lies in a
// file that is mapped: of those nothing is kept.
type Size struct {
	Bytes, Claim int64
	InPlace      bool
}

// NewForecast makes one of so many blocks, in a cache without room. Auto is the policy that suits a single plan, which reads
// each block once an epoch or not.
func NewForecast(policy string, once bool, blocks int, size func(block int) Size) (*Forecast, error) {
	if policy == Auto {
		policy = Adaptive
		if once {
			policy = Pinned
		}
	}
	if policies[policy] == nil {
		return nil, fmt.Errorf("cache: no policy %q: there are %v", policy, Policies)
	}
	f := &Forecast{policy: policies[policy](), name: policy, every: max(1, (blocks+standIns-1)/standIns)}
	f.items = make([]item, (blocks+f.every-1)/f.every)
	f.claims, f.below = make([]int64, len(f.items)), make([]bool, len(f.items))
	plan := &Plan{}
	plan.streams.Store(1)
	for n := range f.items {
		i := &f.items[n]
		i.hash = mixed(uint64(n))
		i.plan.Store(plan)
		if s := size(n * f.every); s.InPlace {
			f.inPlace += s.Bytes
		} else {
			i.bytes, f.claims[n] = s.Bytes, s.Claim
		}
		f.bytes += i.bytes
	}
	return f, nil
}

// Policy names the policy that is asked.
func (f *Forecast) Policy() string { return f.name }

// Bytes is what all blocks take but those in mapped files.
func (f *Forecast) Bytes() int64 { return f.bytes * int64(f.every) }

// InPlace is what those in mapped files take.
func (f *Forecast) InPlace() int64 { return f.inPlace * int64(f.every) }

// Give makes the cache one of so many bytes.
func (f *Forecast) Give(room int64) {
	f.room = max(room, 0) / int64(f.every)
	f.least = f.room
}

// Room returns how much of the room was left for what is kept when that was least, since it was last asked.
func (f *Forecast) Room() int64 {
	least := f.least
	f.least = f.room
	return max(least, 0) * int64(f.every)
}

// GiveDisk puts a disk of so many bytes below, empty at first. What lies there is mapped, or else becomes memory again when
// it is read.
func (f *Forecast) GiveDisk(room int64, mapped bool) {
	f.left, f.mapped = max(room, 0)/int64(f.every), mapped
}

// Begin begins to read n blocks together. Those that are there stay until End. For the others so much of the room is set aside
// if that is not more than most, and if what may go makes room for it; else whoever reads them has memory of its own, until End.
func (f *Forecast) Begin(n int, block func(i int) int, most int64) *Reading {
	r := &Reading{forecast: f, own: true}
	var missing int64
	for at := range n {
		b := block(at)
		if b%f.every != 0 {
			continue
		}
		if i := &f.items[b/f.every]; i.list == nil {
			missing += f.claims[b/f.every]
		} else {
			r.hold(i)
		}
	}
	if missing*int64(f.every) <= most {
		f.aside += missing
		if f.shrink() {
			r.own, r.whole, r.aside = false, missing, missing
		} else {
			f.aside -= missing
		}
	}
	f.note()
	return r
}

// Own tells whether whoever reads pays for what is loaded.
func (r *Reading) Own() bool { return r.own }

// Aside is what was set aside for it.
func (r *Reading) Aside() int64 { return r.whole * int64(r.forecast.every) }

func (r *Reading) hold(i *item) {
	i.leases.Add(1)
	r.held = append(r.held, i)
}

// Borrow lets decoders have so many bytes of the room, in place of what they had.
func (f *Forecast) Borrow(bytes int64) {
	f.borrowed = bytes / int64(f.every)
	f.shrink()
	f.note()
}

func (f *Forecast) note() { f.least = min(f.least, f.room-f.aside-f.borrowed) }

// shrink gives up what there is no room for, and tells whether there is room for the rest.
func (f *Forecast) shrink() bool {
	for f.used-f.beside > f.room-f.aside-f.borrowed {
		v := f.policy.Victim()
		if v == nil {
			return false
		}
		f.used -= v.bytes
		f.policy.Remove(v)
	}
	return true
}

// Read reads a block, and tells how many bytes of it count, none unless it stands for others, and which tier would have it, or
// the one that stands for it; "" is none.
func (r *Reading) Read(block int) (bytes int64, tier string) {
	f := r.forecast
	n := block / f.every
	i := &f.items[n]
	switch {
	case i.list != nil:
		tier = Memory
	case f.below[n]:
		tier = Disk
	}
	if block%f.every != 0 {
		return 0, tier
	}
	if tier == "" && i.bytes <= f.left { // it is loaded: so it is written, and then stays, for its plan is in use
		f.below[n] = true
		f.left -= i.bytes
	}
	f.policy.Use(i)
	switch {
	case tier == Disk && f.mapped:
		f.policy.Remove(i)
	case tier != Memory:
		r.load(i, f.claims[n])
	}
	return i.bytes, tier
}

// load puts a block where there was none, for which so much was asked.
func (r *Reading) load(i *item, claim int64) {
	f := r.forecast
	r.hold(i)
	f.used += i.bytes
	if r.own {
		f.beside += i.bytes
		r.loaded += i.bytes
	} else {
		f.aside -= claim
		r.aside -= claim
	}
}

// End gives back what was read. What was loaded is kept, if there is room.
func (r *Reading) End() {
	f := r.forecast
	for _, i := range r.held {
		i.leases.Add(-1)
	}
	f.aside -= r.aside
	f.beside -= r.loaded
	f.shrink()
}

// mixed makes a hash of a number.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
