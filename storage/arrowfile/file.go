package arrowfile

import (
	"context"
)

const (
	magic = "ARROW1" // at both ends of a file; two bytes of padding after the first
	head  = 8        // bytes before the first message
	foot  = 10       // bytes after the footer: its length, and the magic
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
	dictionaries, nd := t.vector(2, 24)
	batches, nb := t.vector(3, 24)
	if f.err != nil {
		return f.err
	}
	if version > version5 { // older footers need not say it; messages do
		return checkVersion(version)
	}
	if err := d.schema(schema); err != nil {
		return err
	}
	for i := range nd {
		if err := d.block(ctx, dictionaries[24*i:], d.dictionary); err != nil {
			return err
		}
	}
	for i := range nb {
		if err := d.block(ctx, batches[24*i:], d.batch); err != nil {
			return err
		}
	}
	return nil
}

func (d *describer) footer(ctx context.Context) ([]byte, error) {
	size := d.w.obj.Size()
	if size < head+foot {
		return nil, corruptf("a file without its footer: cut short, or still being written")
	}
	end, err := d.w.bytes(ctx, size-foot, foot)
	if err != nil {
		return nil, err
	}
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
	return footer, d.w.obj.ReadAt(ctx, footer, size-foot-n)
}

// block reads the message that an entry of the footer points to.
func (d *describer) block(ctx context.Context, b []byte, take func(*message) error) error {
	at, meta, body := le64(b), int32(le32(b[8:])), le64(b[16:])
	if at < head || at > d.w.obj.Size() {
		return corruptf("the footer lists a message at %d", at)
	}
	m, err := d.w.message(ctx, at)
	if err != nil {
		return err
	}
	if m == nil {
		return corruptf("the footer lists a message where there is none")
	}
	if m.place.Meta != meta || m.place.Body != body {
		return corruptf("the footer and a message disagree about its length")
	}
	return take(m)
}
