package arrowfile

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/bucket"
)

const (
	// entrySize is the length of a footer's entry for a message.
	entrySize = 24
	// together is how many requests for metadata a description has under way.
	together = 64
	// room is how many bytes of them are held if there is memory: some dozens of
	// files are described at a time, on the Go heap.
	room = 1 << 20
	// scant is how many otherwise.
	scant = 64 << 10
	// apart is how many bytes between metadata are read rather than skipped. As
	// many requests as are under way bring more bytes of others in that time.
	apart = 16 << 10
)

// entry is what a footer says of a message.
type entry []byte

func (e entry) at() int64   { return le64(e) }
func (e entry) meta() int32 { return int32(le32(e[8:])) }
func (e entry) body() int64 { return le64(e[16:]) }

// portion is a run of an object's bytes, and how many messages of a footer lie there.
type portion struct {
	bucket.Range
	entries int
}

// blocks reads the messages that entries of the footer point to, in order. In a
// store each read is a round trip: there many are made at once.
func (d *describer) blocks(ctx context.Context, entries []byte, take func(*message) error) error {
	for len(entries) > 0 {
		portions := []portion{{entries: len(entries) / entrySize}}
		if d.w.obj.Remote() {
			portions = fetchable(entries, d.w.obj.Size(), d.w.room)
		}
		d.w.buf = nil // it counts as well
		buffers, err := d.fetch(ctx, portions)
		if err != nil {
			return err
		}
		for i, p := range portions {
			if p.Len > 0 {
				d.w.off, d.w.buf = p.Off, buffers[i]
			}
			for range p.entries {
				if err := d.block(ctx, entry(entries[:entrySize]), take); err != nil {
					return err
				}
				entries = entries[entrySize:]
			}
		}
	}
	return nil
}

// fetchable cuts portions of the first entries, at least one: so many that their
// bytes are no more than there is room for. Footers may lie: what is not where
// they say is found out, and read if it must, when the message is.
func fetchable(entries []byte, size, room int64) (portions []portion) {
	var held int64
	for ; len(entries) > 0; entries = entries[entrySize:] {
		next := entry(entries[:entrySize]).portion(size)
		if n := len(portions) - 1; n >= 0 {
			joined := portions[n].join(next, room/4)
			grown := held + joined.Len - portions[n].Len
			switch {
			case joined.entries == 0:
				grown = held + next.Len
			case grown <= room:
				portions[n], held = joined, grown
				continue
			}
			if len(portions) == together || grown > room {
				return portions
			}
		}
		portions, held = append(portions, next), held+next.Len
	}
	return portions
}

// portion is where the metadata of one message should be.
func (e entry) portion(size int64) portion {
	if e.at() < head || e.at() > size {
		return portion{entries: 1}
	}
	const least = 8 // tell how long it is
	n := min(max(int64(e.meta()), least), maxMessage, size-e.at())
	return portion{bucket.Range{Off: e.at(), Len: n}, 1}
}

// join returns both as one, none if they are too far apart or longer than most.
func (p portion) join(next portion, most int64) portion {
	end, reach := p.Off+p.Len, next.Off+next.Len
	if next.Off < p.Off || next.Off > end+apart || max(end, reach)-p.Off > most {
		return portion{}
	}
	return portion{bucket.Range{Off: p.Off, Len: max(end, reach) - p.Off}, p.entries + next.entries}
}

// fetch reads portions, all at once. Those without bytes it leaves out.
func (d *describer) fetch(ctx context.Context, portions []portion) ([][]byte, error) {
	buffers := make([][]byte, len(portions))
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range portions {
		if p.Len > 0 {
			buffers[i] = make([]byte, p.Len)
			group.Go(func() error { return d.w.obj.ReadAt(ctx, buffers[i], p.Off) })
		}
	}
	return buffers, group.Wait()
}
