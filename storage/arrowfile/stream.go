package arrowfile

import (
	"context"
	"slices"
)

// stream walks all messages. Meta is the SHA-256 of every message but its
// body, length prefixes included, in order.
func (d *describer) stream(ctx context.Context) error {
	size := d.w.obj.Size()
	m, err := d.first(ctx)
	if err != nil {
		return err
	}
	for at := m.place.end(); at < size; at = m.place.end() {
		d.w.follow(m.place)
		if m, err = d.w.message(ctx, at); err != nil {
			return err
		}
		if m == nil {
			return d.tail(ctx, at)
		}
		d.hash.Write(m.raw)
		switch m.kind {
		case headerDictionary:
			err = d.dictionary(m)
		case headerBatch:
			err = d.batch(m)
		case headerSchema:
			err = corruptf("a second schema in the middle of a stream")
		default:
			err = unsupportedf("messages of kind %d in a stream", m.kind)
		}
		if err != nil {
			return err
		}
	}
	return nil // a stream may end without the mark, between two messages
}

// first reads the schema. Whatever cannot be a message at the very beginning
// is some other kind of file, which is the more helpful thing to say.
func (d *describer) first(ctx context.Context) (*message, error) {
	size := d.w.obj.Size()
	head, err := d.w.bytes(ctx, 0, int(min(size, 4)))
	if err != nil {
		return nil, err
	}
	if len(head) == 4 {
		n := le32(head)
		if n != continuation && (n == 0 || n > maxMessage || int64(n) > size-4) {
			return nil, corruptf("neither an Arrow IPC file nor a stream")
		}
	}
	m, err := d.w.message(ctx, 0)
	if err != nil {
		return nil, err
	}
	if m == nil || m.kind != headerSchema {
		return nil, corruptf("a stream that does not begin with a schema")
	}
	d.hash.Write(m.raw)
	return m, d.schema(m.header)
}

// tail looks at what follows the mark that ends a stream: nothing, or a few
// zero bytes of padding. More would be rows that are lost without a word, as in
// two streams written one after the other.
func (d *describer) tail(ctx context.Context, at int64) error {
	const most = 64
	rest := d.w.obj.Size() - at
	b, err := d.w.bytes(ctx, at, int(min(rest, most)))
	if err != nil {
		return err
	}
	if len(b) >= 4 && le32(b) == continuation {
		b = b[4:]
	}
	if rest > most || slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
		return corruptf("there are data after the end of the stream")
	}
	return nil
}
