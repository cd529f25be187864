package cache

import (
	"fmt"
	"unsafe"
)

// Forecast finds out what a policy would make of reading blocks in some order. It has none of them: it asks the policy
// itself, about as many of the blocks as tell enough.
type Forecast struct {
	policy Policy
	name   string
	items  []item // of the blocks that stand for all
	every  int    // one in so many does
	bytes  int64  // of those
	room   int64  // for those
	used   int64
}

// standIns is how many blocks are followed at most.
const standIns = 1 << 14

// ForecastBytes is the memory that a forecast of so many blocks takes.
func ForecastBytes(blocks int) int64 {
	return int64(min(blocks, standIns)) * int64(unsafe.Sizeof(item{}))
}

// NewForecast makes one of so many blocks, whose sizes are told, in a cache without room. Auto is the policy that suits
// a single plan, which reads each block once an epoch or not.
func NewForecast(policy string, once bool, blocks int, size func(block int) int64) (*Forecast, error) {
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
	plan := &Plan{}
	plan.streams.Store(1)
	for n := range f.items {
		i := &f.items[n]
		i.hash, i.bytes = mixed(uint64(n)), size(n*f.every)
		i.plan.Store(plan)
		f.bytes += i.bytes
	}
	return f, nil
}

// Policy names the policy that is asked.
func (f *Forecast) Policy() string { return f.name }

// Bytes is what all blocks take.
func (f *Forecast) Bytes() int64 { return f.bytes * int64(f.every) }

// Give makes the cache one of so many bytes.
func (f *Forecast) Give(room int64) { f.room = max(room, 0) / int64(f.every) }

// Read reads a block, and tells how many bytes of it count, none unless it stands for others, and whether it would be there.
func (f *Forecast) Read(block int) (bytes int64, hit bool) {
	if block%f.every != 0 {
		return 0, false
	}
	i := &f.items[block/f.every]
	if hit = i.list != nil; !hit {
		f.used += i.bytes
	}
	f.policy.Use(i)
	for f.used > f.room {
		v := f.policy.Victim()
		f.used -= v.bytes
		f.policy.Remove(v)
	}
	return i.bytes, hit
}

// mixed makes a hash of a number.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
