package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/snapshot"
)

// describe makes a shard of one listed object. Whatever is wrong with it is
// the shard's own error; the error returned means that ctx ended, or that the
// store cannot be reached, which says nothing about the object. The shard is nil
// if the object has vanished, and not final if looking again may help.
func describe(ctx context.Context, b *bucket.Bucket, a bucket.Attrs, l *budget.Ledger) (sh *snapshot.Shard, final bool, err error) {
	bad := &snapshot.Shard{Key: a.Key, Size: a.Size, Format: promised(a.Key), Pin: string(a.Pin), Err: judged(a.Err)}
	if a.Err != nil {
		return bad, false, nil
	}
	// What was listed may have been replaced since: then it is the new one.
	far := false
	for _, pin := range []bucket.Pin{a.Pin, ""} {
		var obj *bucket.Object
		if obj, err = b.Open(ctx, a.Key, pin); err == nil {
			far = obj.Remote()
			sh, err = describeObject(ctx, obj, l)
			bad.Size, bad.Pin = obj.Size(), string(obj.Pin())
			_ = obj.Close() // only read: nothing to tell
		}
		if !errors.Is(err, bucket.ErrChanged) {
			break
		}
	}
	switch {
	case err == nil:
		sh.Key, sh.Size, sh.Pin = bad.Key, bad.Size, bad.Pin
		return sh, true, nil
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case far && errors.Is(err, bucket.ErrUnreachable):
		return nil, false, err
	case errors.Is(err, bucket.ErrNotFound) && !errors.Is(err, bucket.ErrOutside):
		return nil, false, nil
	}
	bad.Err = judged(err)
	return bad, lasting(err), nil
}

// judged says of a store that tells no versions that it is not served: its
// objects may be as good as any.
func judged(err error) error {
	if errors.Is(err, bucket.ErrUnversioned) {
		return fmt.Errorf("%w: %w", snapshot.ErrUnsupported, err)
	}
	return err
}

// lasting tells whether an error is about the object's bytes, so that only
// other bytes can mend it.
func lasting(err error) bool {
	return errors.Is(err, snapshot.ErrCorrupt) || errors.Is(err, snapshot.ErrUnsupported)
}

// describeObject turns a panic over foreign bytes into the object's error.
func describeObject(ctx context.Context, obj *bucket.Object, l *budget.Ledger) (sh *snapshot.Shard, err error) {
	defer func() {
		if p := recover(); p != nil {
			sh, err = nil, fmt.Errorf("%w: reading it failed: %v", snapshot.ErrCorrupt, p)
		}
	}()
	if obj.Size() == 0 {
		return nil, fmt.Errorf("%w: the file is empty", snapshot.ErrCorrupt)
	}
	f := promised(obj.Key())
	if f == "" {
		if f, err = sniff(ctx, obj); err != nil {
			return nil, err
		}
	}
	return formats[f].describe(ctx, obj, l)
}

// promised returns the format that a key's extension promises, "" for none.
func promised(key string) snapshot.Format { return extensions[strings.ToLower(path.Ext(key))] }

// sniff tells the format of an object with a name of its own from its content.
func sniff(ctx context.Context, obj *bucket.Object) (snapshot.Format, error) {
	head := make([]byte, min(4, obj.Size()))
	if err := obj.ReadAt(ctx, head, 0); err != nil {
		return "", err
	}
	if s := string(head); s == "PAR1" || s == "PARE" {
		return snapshot.Parquet, nil
	}
	return snapshot.Arrow, nil
}

// unmixed refuses datasets of several formats. IPC files and streams are one.
func unmixed(shards []*snapshot.Shard) error {
	first := map[bool]*snapshot.Shard{} // by being Parquet
	for _, sh := range shards {
		if sh.Format == "" {
			continue
		}
		is := sh.Format == snapshot.Parquet
		if first[is] == nil {
			first[is] = sh
		}
	}
	if len(first) > 1 {
		return fmt.Errorf("%w: mixed formats: %q is Parquet, %q is Arrow IPC: choose one with the key files of a config", snapshot.ErrUnsupported, first[true].Key, first[false].Key)
	}
	return nil
}
