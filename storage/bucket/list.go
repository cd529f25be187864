package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"
)

// list yields what lies under a prefix of a store. All pages are read first:
// not every store sends them in order.
func (r *remote) list(ctx context.Context, under, prefix string, yield func(Attrs) error, e Events) error {
	var all []entry
	page := ""
	for more := true; more; {
		entries, next, err := r.page(ctx, under+prefix, page, e)
		if err != nil {
			return err
		}
		if next != "" && next == page {
			return fmt.Errorf("%w: %s: list %q: the store answers with the same page again and again", ErrUnreachable, r.name, prefix)
		}
		all = append(all, entries...)
		page, more = next, next != ""
	}
	byKey := func(a, b entry) int { return cmp.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(all, byKey) {
		slices.SortStableFunc(all, byKey)
	}
	t := tree{prefix: prefix, yield: yield}
	for i, at := range all {
		if i+1 < len(all) && all[i+1].key == at.key {
			continue // it was replaced between two pages: the later one counts
		}
		if err := t.visit(strings.TrimPrefix(at.key, under), at.stamp); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (r *remote) page(ctx context.Context, prefix, page string, e Events) (entries []entry, next string, err error) {
	err = r.attempt(ctx, e, fmt.Sprintf("list %q", prefix), func(ctx context.Context) (bool, error) {
		_, err := r.request(ctx, e, "list", func(ctx context.Context, _ func()) (int64, error) {
			entries, next, err = r.store.list(ctx, prefix, page)
			return 0, err
		})
		return false, err
	})
	if f := (*fault)(nil); errors.As(err, &f) && f.what != trouble {
		err = fmt.Errorf("%w: %s: list %q: %w", ErrUnreachable, r.name, prefix, f.opaque())
	}
	return entries, next, err
}

// opaque returns f as an error that is about no object.
func (f *fault) opaque() error { return errors.New(f.Error()) }

// tree makes folders of keys in order.
type tree struct {
	prefix string
	yield  func(Attrs) error
	at     string // the folder last entered, empty or ending in a slash
	left   string // a folder that was left out; "" for none
}

// visit yields an object, after the folders that it is the first in.
func (t *tree) visit(key string, s stamp) error {
	if t.left != "" && strings.HasPrefix(key, t.left) {
		return nil
	}
	for !strings.HasPrefix(key, t.at) {
		t.at = t.at[:strings.LastIndexByte(t.at[:len(t.at)-1], '/')+1]
	}
	for {
		i := strings.IndexByte(key[len(t.at):], '/')
		if i < 0 {
			break
		}
		t.at = key[:len(t.at)+i+1]
		// Folders that only lead to the prefix are not listed; odd ones are none.
		if strings.HasPrefix(t.prefix, t.at) || !validKey(t.at[:len(t.at)-1]) {
			continue
		}
		if err := t.yield(Attrs{Key: t.at}); errors.Is(err, fs.SkipDir) {
			t.left = t.at
			return nil
		} else if err != nil {
			return err
		}
	}
	if key == t.at && s.size == 0 {
		return nil // a marker: the folder was listed
	}
	a := Attrs{Key: key, Size: s.size, Pin: s.pin()}
	if s.tag == "" {
		a = Attrs{Key: key, Err: ErrUnversioned}
	}
	if !validKey(key) || !utf8.ValidString(key) {
		a = Attrs{Key: strings.TrimSuffix(key, "/"), Err: errors.New("the key has empty parts, '.' or '..', ends in a slash, or is not valid UTF-8")}
	}
	return t.yield(a)
}
