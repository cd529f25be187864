package disk

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// remains is a block of a tier before this one.
type remains struct {
	header  *header
	id      id
	written time.Time
}

// scan finds the blocks that are there, and deletes what is of no use: files that were being written, damaged ones,
// blocks of other versions, and the oldest of those that are too many.
func (t *Tier) scan() {
	defer close(t.found)
	entries, err := fs.ReadDir(t.dir.Load().root.FS(), ".")
	if err != nil {
		t.fail(reading, err)
		return
	}
	const readers = 16 // most of the time is the disk's
	var mu sync.Mutex
	var all []remains
	var group errgroup.Group
	group.SetLimit(readers)
	for _, d := range entries {
		if t.ctx.Err() != nil {
			break
		}
		if !d.Type().IsRegular() {
			continue
		}
		group.Go(func() error {
			if r, ok := t.examine(d); ok {
				mu.Lock()
				all = append(all, r)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // they have none
	t.adopt(all)
}

// examine reads the header of a file, if its name is one of ours. What is of no use is deleted.
func (t *Tier) examine(d fs.DirEntry) (r remains, ok bool) {
	name := d.Name()
	if _, begun := idIn(name, suffix+temporary); begun {
		if _, err := t.dir.Load().remove(name); err != nil {
			t.fail(writing, err)
		}
		return r, false
	}
	if r.id, ok = idIn(name, suffix); !ok {
		return r, false
	}
	f, size, err := t.dir.Load().open(name)
	if err != nil {
		return r, false
	}
	mine := ours(f)
	r.header, err = readHeader(f, size)
	if info, statErr := d.Info(); err == nil && statErr == nil {
		r.written = info.ModTime()
	}
	_ = f.Close() // only read: nothing to tell
	switch {
	case !mine:
		return r, false
	case err == nil && idOf(r.header.key, r.header.columns) != r.id:
		err = damagedf("it holds another block")
	case err == nil && r.header.version == t.options.Version:
		return r, true
	}
	if errors.Is(err, errDamaged) {
		t.damaged(name, err)
	}
	if _, err := t.dir.Load().remove(name); err != nil {
		t.fail(writing, err)
	}
	return r, false
}

// adopt puts blocks into the index, the oldest first, so that they are the first to go.
func (t *Tier) adopt(all []remains) {
	slices.SortFunc(all, func(a, b remains) int { return cmp.Or(a.written.Compare(b.written), slices.Compare(a.id[:], b.id[:])) })
	var needless []*entry
	t.mu.Lock()
	for _, r := range all {
		x := t.index
		g := x.of(r.header.plan)
		if x.find(r.header.key, x.set(r.header.columns)) != nil {
			needless = append(needless, &entry{id: r.id})
			x.tidy(g)
			continue
		}
		x.bytes += r.header.bytes()
		needless = append(needless, x.add(&entry{id: r.id, key: r.header.key, columns: x.set(r.header.columns), bytes: r.header.bytes()}, g)...)
	}
	victims, _ := t.index.promise(0)
	t.mu.Unlock()
	t.delete(append(needless, victims...)...)
}
