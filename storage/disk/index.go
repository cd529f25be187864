package disk

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/headrace/headrace/storage/cache"
)

// id names the file of a block with a set of columns.
type id [16]byte

func idOf(k cache.Key, columns []string) (i id) {
	h := sha256.New()
	for _, s := range append([]string{k.Object}, columns...) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	h.Write(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(k.Segment)), uint64(k.From)))
	copy(i[:], h.Sum(nil))
	return i
}

// The names of our files: of blocks, and of blocks that are being written.
const (
	suffix    = ".block"
	temporary = ".part"
)

func (i id) file() string { return hex.EncodeToString(i[:]) + suffix }

// idIn reads the name of a file, which has a suffix.
func idIn(name, suffix string) (i id, ok bool) {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok || len(stem) != 2*len(i) || stem != strings.ToLower(stem) {
		return i, false
	}
	_, err := hex.Decode(i[:], []byte(stem))
	return i, err == nil
}

// entry is a block that is on disk.
type entry struct {
	id      id
	key     cache.Key
	columns *cache.Columns // by name alone
	bytes   int64          // of the file
	group   *group
	at      *list.Element // in the group
}

// group is what one plan uses. What an open stream's plan uses stays; of the rest, the plans that were used longest ago
// go first.
type group struct {
	name    string
	plan    *cache.Plan // nil: not asked for since the start
	used    uint64      // when it was last, by the index's clock
	entries list.List   // oldest first
	bytes   int64
}

func (g *group) live() bool { return g.plan != nil && g.plan.Live() }

// index is what there is. Its owner has a lock.
type index struct {
	limit  int64
	bytes  int64 // of all entries, and promised to those that are being written
	clock  uint64
	blocks map[cache.Key][]*entry // with different columns; seldom more than one
	groups map[string]*group
	sets   map[string]*cache.Columns // so that equal sets are one
	names  map[string]string         // so that equal names of objects are
	count  int
}

func newIndex(limit int64) *index {
	return &index{limit: limit, blocks: map[cache.Key][]*entry{}, groups: map[string]*group{}, sets: map[string]*cache.Columns{}, names: map[string]string{}}
}

// set finds the columns with such names.
func (x *index) set(names []string) *cache.Columns {
	id := strings.Join(names, "\x01")
	if x.sets[id] == nil {
		x.sets[id] = cache.NamedColumns(names)
	}
	return x.sets[id]
}

// name finds the name of an object that equals another: blocks of one object share it.
func (x *index) name(object string) string {
	if len(x.names) > 1000+x.count {
		clear(x.names) // most are of objects that have gone
	}
	if name, ok := x.names[object]; ok {
		return name
	}
	x.names[object] = object
	return object
}

// find returns an entry with a block and its columns, of several the smallest.
func (x *index) find(k cache.Key, columns *cache.Columns) (found *entry) {
	for _, e := range x.blocks[k] {
		if _, ok := columns.Within(e.columns); ok && (found == nil || e.bytes < found.bytes) {
			found = e
		}
	}
	return found
}

// of finds the group of a plan by its name.
func (x *index) of(name string) *group {
	g := x.groups[name]
	if g == nil {
		g = &group{name: name}
		x.groups[name] = g
	}
	x.clock++
	g.used = x.clock
	return g
}

// use notes that a plan uses an entry: what nobody else uses becomes its own.
func (x *index) use(e *entry, p *cache.Plan) {
	g := x.of(p.Name())
	g.plan = p
	if e.group != g && !e.group.live() {
		x.leave(e)
		x.join(e, g)
	}
	x.tidy(g)
}

func (x *index) join(e *entry, g *group) {
	x.groups[g.name] = g // it may have been forgotten just now
	e.group, e.at = g, g.entries.PushBack(e)
	g.bytes += e.bytes
}

func (x *index) leave(e *entry) {
	g := e.group
	g.entries.Remove(e.at)
	g.bytes -= e.bytes
	x.tidy(g)
}

// tidy forgets a group without entries.
func (x *index) tidy(g *group) {
	if g.entries.Len() == 0 {
		delete(x.groups, g.name)
	}
}

// add puts an entry in, whose bytes are promised. What it makes needless goes: entries with some of its columns.
func (x *index) add(e *entry, g *group) (needless []*entry) {
	for _, o := range x.blocks[e.key] {
		if _, ok := o.columns.Within(e.columns); ok {
			needless = append(needless, o)
		}
	}
	for _, o := range needless {
		x.remove(o)
	}
	e.key.Object = x.name(e.key.Object)
	x.blocks[e.key] = append(x.blocks[e.key], e)
	x.join(e, g)
	x.count++
	return needless
}

// remove takes an entry out, and tells whether it was in.
func (x *index) remove(e *entry) bool {
	entries := x.blocks[e.key]
	for i, o := range entries {
		if o != e {
			continue
		}
		if len(entries) == 1 {
			delete(x.blocks, e.key)
		} else {
			x.blocks[e.key] = append(entries[:i:i], entries[i+1:]...)
		}
		x.leave(e)
		x.bytes -= e.bytes
		x.count--
		return true
	}
	return false
}

// clear takes all entries out.
func (x *index) clear() {
	for _, entries := range x.blocks {
		for _, e := range slices.Clone(entries) {
			x.remove(e)
		}
	}
}

// promise makes room for so many bytes, and tells whether there is: nothing goes if not all would fit.
func (x *index) promise(n int64) (victims []*entry, ok bool) {
	stale, bytes := x.stale()
	if x.bytes-bytes+n > x.limit {
		return nil, false
	}
	for x.bytes+n > x.limit {
		if stale[0].entries.Len() == 0 {
			stale = stale[1:]
			continue
		}
		e := stale[0].entries.Front().Value.(*entry)
		x.remove(e)
		victims = append(victims, e)
	}
	x.bytes += n
	return victims, true
}

// stale lists the groups whose plans nobody reads, those used longest ago first, and what they have in all. Streams of the
// plans are opened at any time, without the owner's lock, so who asks twice may get two answers.
func (x *index) stale() (all []*group, bytes int64) {
	for _, g := range x.groups {
		if !g.live() {
			all = append(all, g)
			bytes += g.bytes
		}
	}
	slices.SortFunc(all, func(a, b *group) int { return cmp.Compare(a.used, b.used) })
	return all, bytes
}
