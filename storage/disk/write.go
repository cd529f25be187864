package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

// job is a block that is to be written, if the cache still has it then.
type job struct {
	id      id
	from    *cache.Cache
	key     cache.Key
	columns *cache.Columns
	plan    *cache.Plan
}

// Loaded implements cache.Below.
func (t *Tier) Loaded(from *cache.Cache, r cache.Request) {
	j := job{id: idOf(r.Block, r.Columns.Names()), from: from, key: r.Block, columns: r.Columns, plan: r.Plan}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, twice := t.pending[j.id]; twice || t.dir.Load() == nil || t.index.find(j.key, j.columns) != nil {
		return
	}
	select {
	case t.queue <- j:
		t.pending[j.id] = struct{}{}
	default:
		t.counts.Dropped++
	}
}

// write writes what is queued, until the tier is closed.
func (t *Tier) write() {
	select { // names of files may be those of blocks that are not yet known
	case <-t.found:
	case <-t.ctx.Done():
	}
	for t.ctx.Err() == nil {
		select {
		case j := <-t.queue:
			t.keep(j)
			t.mu.Lock()
			delete(t.pending, j.id)
			t.mu.Unlock()
		case <-t.ctx.Done():
		}
	}
}

// keep writes a block, unless the disk failed just now.
func (t *Tier) keep(j job) {
	var lease *cache.Lease
	if t.ready() {
		lease = j.from.Take(j.key, j.columns)
	}
	if lease == nil {
		t.count(func(c *Counts) { c.Dropped++ })
		return
	}
	defer lease.Release()
	var head []byte
	var l *layout
	err := protect(func() (err error) {
		head, l, err = t.compose(j, lease.Frames())
		return err
	})
	if err != nil { // a kind of frame that is not kept
		t.count(func(c *Counts) { c.Refused++ })
		return
	}
	t.place(j, head, l)
}

// ready tells whether the disk is to be tried now: it has not failed, or that is a while ago.
func (t *Tier) ready() bool {
	t.mu.Lock()
	trouble := t.trouble[writing]
	t.mu.Unlock()
	if trouble.text == "" {
		return true
	}
	if time.Now().Before(trouble.rest) {
		return false
	}
	err := t.renew()
	if err != nil {
		t.fail(writing, err)
	}
	return err == nil
}

// compose puts a block's file together.
func (t *Tier) compose(j job, frames []*frame.Lease) ([]byte, *layout, error) {
	schema, err := schemaMessage(j.columns.Schema())
	if err != nil {
		return nil, nil, err
	}
	l, err := layOut(frames)
	if err != nil {
		return nil, nil, err
	}
	h := &header{version: t.options.Version, plan: j.plan.Name(), key: j.key, columns: j.columns.Names(), frames: l.frames}
	// The file's end says where its messages are, behind a head whose size depends on how many checksums there are: so
	// both are put together twice, with what does not change their size left open at first.
	blank := *l
	blank.finish(0, schema)
	h.rest, h.sums = blank.size, make([]uint32, pieces(blank.size))
	head, err := h.marshal(schema)
	if err != nil {
		return nil, nil, err
	}
	l.finish(int64(len(head)), schema)
	var s summer
	if err := l.emit(&s); err != nil {
		return nil, nil, err
	}
	h.sums = s.sums
	head, err = h.marshal(schema)
	return head, l, err
}

// place makes room for a file and writes it there.
func (t *Tier) place(j job, head []byte, l *layout) {
	bytes := int64(len(head)) + l.size
	t.mu.Lock()
	victims, ok := t.index.promise(bytes)
	t.counts.Evicted += int64(len(victims))
	t.mu.Unlock()
	if !ok {
		t.count(func(c *Counts) { c.Refused++ })
		return
	}
	t.delete(victims...)
	err := t.put(j.id, head, l)
	t.mu.Lock()
	if err != nil {
		t.index.bytes -= bytes
		t.mu.Unlock()
		if errors.Is(err, errTaken) {
			t.count(func(c *Counts) { c.Refused++ })
		} else {
			t.fail(writing, err)
		}
		return
	}
	g := t.index.of(j.plan.Name())
	g.plan = j.plan
	e := &entry{id: j.id, key: j.key, columns: t.index.set(j.columns.Names()), bytes: bytes}
	needless := t.index.add(e, g)
	t.counts.Written++
	t.counts.Bytes += bytes
	t.mu.Unlock()
	t.delete(needless...)
	t.succeed(writing)
}

// errTaken means that somebody else's file has the name of one of ours.
var errTaken = errors.New("there is a file that is not ours")

// put writes a file under another name, brings it to the disk, so that after a power failure too a name stands for all of
// its file, and renames it. That errors come here, and what is written does not pile up in memory, are two more reasons.
func (t *Tier) put(i id, head []byte, l *layout) (err error) {
	d, name, part := t.dir.Load(), i.file(), i.file()+temporary
	for _, n := range []string{name, part} {
		if free, err := d.remove(n); err != nil || !free {
			return errors.Join(err, fmt.Errorf("%s: %w", n, errTaken))
		}
	}
	f, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrNotExist) && d.gone() {
		return fmt.Errorf("%s: %w", d.path, errGone)
	}
	if err != nil {
		return err
	}
	if err = errors.Join(fill(f, head, l), f.Close()); err == nil {
		err = d.root.Rename(part, name)
	}
	if err != nil {
		err = errors.Join(err, d.root.Remove(part))
	}
	return err
}

func fill(f *os.File, head []byte, l *layout) error {
	w := bufio.NewWriterSize(f, 64<<10) // large runs go past it
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := l.emit(io.Writer(w)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}
