package cache

import "math/bits"

// sketch counts how often keys were used lately: a count-min sketch of four rows
// of four-bit counters, all halved now and then. It grows with the number of
// items that are resident; per item it takes about eight bytes.
type sketch struct {
	table []uint64 // sixteen counters each; the length is a power of two
	added int      // since the counters were halved
}

const (
	leastSketch = 64 // words
	fresh       = 10 // uses per item after which counters are halved
)

// fit makes room for n items. Counts stay: a key's counter in the doubled table
// begins as what it was in the old one.
func (s *sketch) fit(n int) {
	if s.table == nil {
		s.table = make([]uint64, leastSketch)
	}
	for len(s.table) < n {
		s.table = append(s.table, s.table...)
	}
}

// add counts a use of a key; items is how many are resident.
func (s *sketch) add(hash uint64, items int) {
	grown := false
	for row := range 4 {
		word, shift := s.place(hash, row)
		if s.table[word]>>shift&15 < 15 {
			s.table[word] += 1 << shift
			grown = true
		}
	}
	if grown {
		s.added++
	}
	if s.added >= fresh*max(items, leastSketch) {
		s.halve()
	}
}

// count returns how often a key was used, or a little more.
func (s *sketch) count(hash uint64) int {
	least := uint64(15)
	for row := range 4 {
		word, shift := s.place(hash, row)
		least = min(least, s.table[word]>>shift&15)
	}
	return int(least)
}

// place finds the counter of a key in a row: its word, and where in that.
func (s *sketch) place(hash uint64, row int) (word, shift uint64) {
	h := (hash + uint64(row)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h ^= h >> 32
	return h & uint64(len(s.table)-1), (h >> 60 & 3 << 2) | uint64(row)<<4
}

func (s *sketch) halve() {
	odd := 0
	for i, w := range s.table {
		odd += bits.OnesCount64(w & 0x1111111111111111)
		s.table[i] = w >> 1 & 0x7777777777777777
	}
	s.added = (s.added - odd/4) / 2
}
