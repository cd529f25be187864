package arrowfile

import (
	"context"
)

const (
	magic = "ARROW1" // at both ends of a file; two bytes of padding after the first
	head  = 8        // bytes before the first message
	foot  = 10       // bytes after the footer: its length, and the magic
	// firstRead is how much of a file's end is read at once, in the hope that the footer is in it.
	firstRead = 16 << 10
)

// file reads the footer, and the metadata of all messages that it lists: a
// footer alone does not tell rows. Meta is the SHA-256 of the footer.
func (d *describer) file(ctx context.Context) error {
	footer, err := d.footer(ctx)
	if err != nil {
		return err
	}
	d.hash.Write(footer)
	f := newFlat(footer)
	t := f.root()
	version, schema := t.i16(0, 0), t.table(1)
	dictionaries, nd := t.vector(2, entrySize)
	batches, nb := t.vector(3, entrySize)
	if f.err != nil {
		return f.err
	}
	if version > version5 { // older footers need not say it; messages do
		return checkVersion(version)
	}
	if err := d.schema(schema); err != nil {
		return err
	}
	if err := d.blocks(ctx, dictionaries[:nd*entrySize], d.dictionary); err != nil {
		return err
	}
	return d.blocks(ctx, batches[:nb*entrySize], d.batch)
}

func (d *describer) footer(ctx context.Context) ([]byte, error) {
	size := d.w.obj.Size()
	if size < head+foot {
		return nil, corruptf("a file without its footer: cut short, or still being written")
	}
	tail, err := d.w.bytes(ctx, max(0, size-firstRead), int(min(size, firstRead)))
	if err != nil {
		return nil, err
	}
	end := tail[len(tail)-foot:]
	if string(end[4:]) != magic {
		return nil, corruptf("a file without its footer: cut short, or still being written")
	}
	n := int64(le32(end))
	if n == 0 || n > size-head-foot {
		return nil, corruptf("a footer of %d bytes in a file of %d", n, size)
	}
	if n > maxFooter {
		return nil, unsupportedf("a footer of more than %d bytes", maxFooter)
	}
	footer := make([]byte, n) // outlives the window's next use
	if have := tail[:len(tail)-foot]; n <= int64(len(have)) {
		copy(footer, have[int64(len(have))-n:])
		return footer, nil
	}
	return footer, d.w.obj.ReadAt(ctx, footer, size-foot-n)
}

// block reads the message that an entry of the footer points to.
func (d *describer) block(ctx context.Context, e entry, take func(*message) error) error {
	if e.at() < head || e.at() > d.w.obj.Size() {
		return corruptf("the footer lists a message at %d", e.at())
	}
	m, err := d.w.message(ctx, e.at())
	if err != nil {
		return err
	}
	if m == nil {
		return corruptf("the footer lists a message where there is none")
	}
	if m.place.Meta != e.meta() || m.place.Body != e.body() {
		return corruptf("the footer and a message disagree about its length")
	}
	return take(m)
}
