package gateway

import (
	"fmt"
	"hash/crc32"
	"strings"
	"sync"

	"github.com/headrace/headrace/sampler"
)

// trait is one thing that decides an order, by the name that it has in a request.
type trait struct{ field, value string }

// traits are all that decide an order: plans that differ differ in one of them.
type traits [7]trait

func traitsOf(p sampler.Plan, shards int) traits {
	digest := crc32.NewIEEE()
	for _, shard := range p.Shards {
		fmt.Fprintln(digest, shard)
	}
	split := "none"
	if p.Split != nil {
		split = fmt.Sprintf("%d to %d by seed %d", p.Split.From, p.Split.To, p.Split.Seed)
	}
	words := map[sampler.Shuffle]string{}
	for word, shuffle := range shuffles {
		words[shuffle] = word
	}
	return traits{
		{"snapshot", p.Snapshot},
		{"shards", fmt.Sprintf("%d of %d (checksum %08x)", len(p.Shards), shards, digest.Sum32())},
		{"split", split},
		{"shuffle", words[p.Shuffle]},
		{"window_blocks", fmt.Sprint(p.WindowBlocks)},
		{"groups", fmt.Sprint(p.Groups)},
		{"seed", fmt.Sprint(p.Seed)},
	}
}

// planName is a plan as those know it who asked for it. A cursor is no key: what it came from is told only to the tenant that
// made it, when it asks for the dataset it was made for, and so may read it.
type planName struct{ tenant, dataset, digits string }

// plans remembers the plans made last, so that whoever brings a cursor of another one can be told what differs. The zero
// value is ready.
type plans struct {
	mu   sync.Mutex
	of   map[planName]traits
	last [256]planName
	next int
}

// add remembers a plan in place of the oldest one.
func (p *plans) add(name planName, t traits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[planName]traits{}
	}
	if _, ok := p.of[name]; ok {
		return
	}
	delete(p.of, p.last[p.next])
	p.of[name], p.last[p.next] = t, name
	p.next = (p.next + 1) % len(p.last)
}

// cursorDigits is how much of a plan's hash its cursors hold.
const cursorDigits = 32

// difference says in what a plan differs from the one asked for, and what to do.
func (p *plans) difference(name planName, asked traits) string {
	p.mu.Lock()
	other, known := p.of[name]
	p.mu.Unlock()
	if !known {
		return "send the request that the cursor came from, with the same snapshot (it may not be left out), shards, split, shuffle, window_blocks, groups and seed"
	}
	var all []string
	for i, t := range asked {
		if was := other[i].value; was != t.value {
			all = append(all, fmt.Sprintf("%s was %s and is %s", t.field, was, t.value))
		}
	}
	return strings.Join(all, ", ") + "; ask as before, or begin anew without the cursor"
}
