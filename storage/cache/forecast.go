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
	items   []item // of the blocks that stand for all
	every   int    // one in so many does
	bytes   int64  // of those, but for what lies in mapped files
	inPlace int64  // of those that do
	room    int64  // for those
	used    int64
	coming  int64 // of the room, what blocks take that are read next and are not there
	least   int64 // of the room without that

	below  []bool // those that lie on the disk below
	left   int64  // bytes that are free there
	mapped bool   // what lies there is shown from there
}

// standIns is how many blocks are followed at most.
const standIns = 1 << 14

// ForecastBytes is the memory that a forecast of so many blocks takes.
func ForecastBytes(blocks int) int64 {
	return int64(min(blocks, standIns)) * (int64(unsafe.Sizeof(item{})) + 1)
}

// NewForecast makes one of so many blocks, in a cache without room. Of each is told how many bytes it has, and whether it
// lies in a file that is mapped: of those nothing is kept. Auto is the policy that suits
// a single plan, which reads each block once an epoch or not.
func NewForecast(policy string, once bool, blocks int, size func(block int) (bytes int64, inPlace bool)) (*Forecast, error) {
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
	f.below = make([]bool, len(f.items))
	plan := &Plan{}
	plan.streams.Store(1)
	for n := range f.items {
		i := &f.items[n]
		i.hash = mixed(uint64(n))
		i.plan.Store(plan)
		if bytes, inPlace := size(n * f.every); inPlace {
			f.inPlace += bytes
		} else {
			i.bytes = bytes
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

// Ahead makes room for what is not there of n blocks that are read next, all together; those that are there stay meanwhile.
func (f *Forecast) Ahead(n int, block func(i int) int) {
	var there []*item
	f.coming = 0
	for at := range n {
		b := block(at)
		if b%f.every != 0 {
			continue
		}
		if i := &f.items[b/f.every]; i.list == nil {
			f.coming += i.bytes
		} else {
			i.leases.Add(1)
			there = append(there, i)
		}
	}
	f.least = min(f.least, f.room-f.coming)
	f.shrink()
	for _, i := range there {
		i.leases.Add(-1)
	}
}

// shrink gives up what there is no room for.
func (f *Forecast) shrink() {
	for f.used > f.room-f.coming {
		v := f.policy.Victim()
		if v == nil {
			return
		}
		f.used -= v.bytes
		f.policy.Remove(v)
	}
}

// Read reads a block, and tells how many bytes of it count, none unless it stands for others, and which tier would have it;
// "" is none.
func (f *Forecast) Read(block int) (bytes int64, tier string) {
	if block%f.every != 0 {
		return 0, ""
	}
	n := block / f.every
	i := &f.items[n]
	switch {
	case i.list != nil:
		tier = Memory
	case f.below[n]:
		tier = Disk
	case i.bytes <= f.left: // it is loaded: so it is written, and then stays, for its plan is in use
		f.below[n] = true
		f.left -= i.bytes
	}
	if tier != Memory {
		f.coming = max(f.coming-i.bytes, 0)
	}
	if f.policy.Use(i); tier == Disk && f.mapped {
		f.policy.Remove(i)
		return i.bytes, tier
	}
	if tier != Memory {
		f.used += i.bytes
	}
	f.shrink()
	return i.bytes, tier
}

// mixed makes a hash of a number.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
