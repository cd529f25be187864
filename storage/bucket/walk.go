package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// list walks the folder under, or what of it begins with prefix.
func (f *folder) list(ctx context.Context, under, prefix string, yield func(Attrs) error) error {
	dir := path.Dir(prefix + "x")
	root, err := f.root.OpenRoot(under + dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: list %q: %w", ErrUnreachable, prefix, reason(err))
	}
	w := walk{in: f, under: under, prefix: prefix, yield: yield}
	if dir != "." {
		w.base = dir + "/"
	}
	return errors.Join(w.folder(ctx, root, w.base), root.Close())
}

type walk struct {
	in                  *folder
	under, prefix, base string
	yield               func(Attrs) error
}

// folder yields what root, the folder with the given key, holds. Each folder
// is a root of its own, so that a stat costs one system call at any depth.
func (w *walk) folder(ctx context.Context, root *os.Root, key string) error {
	entries, err := readDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && key == w.base {
		return fmt.Errorf("%w: list %q: %w", ErrUnreachable, key, reason(err))
	}
	if err != nil {
		return w.yield(Attrs{Key: key, Err: reason(err)})
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.entry(ctx, root, key+e.Name(), e); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(ctx context.Context, root *os.Root, key string, e fs.DirEntry) error {
	if e.IsDir() {
		return w.enter(ctx, root, key+"/", e.Name())
	}
	if !strings.HasPrefix(key, w.prefix) {
		return nil
	}
	a, err := w.attrs(root, key, e)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		a = Attrs{Key: key, Err: err}
	}
	return w.yield(a)
}

func (w *walk) enter(ctx context.Context, root *os.Root, key, name string) error {
	if !strings.HasPrefix(key, w.prefix) {
		return nil
	}
	if err := w.yield(Attrs{Key: key}); errors.Is(err, fs.SkipDir) {
		return nil
	} else if err != nil {
		return err
	}
	sub, err := root.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return w.yield(Attrs{Key: key, Err: reason(err)})
	}
	return errors.Join(w.folder(ctx, sub, key), sub.Close())
}

// attrs looks at one entry that is no folder. Links are followed from the
// bucket's own root, so they may lead anywhere inside it.
func (w *walk) attrs(root *os.Root, key string, e fs.DirEntry) (Attrs, error) {
	if !utf8.ValidString(key) {
		return Attrs{}, errors.New("the name is not valid UTF-8")
	}
	link := e.Type()&fs.ModeSymlink != 0
	var info fs.FileInfo
	var err error
	if link {
		info, err = w.in.root.Stat(w.under + key)
	} else {
		info, err = root.Lstat(e.Name())
	}
	switch {
	case link && errors.Is(err, w.in.escapes):
		return Attrs{}, fmt.Errorf("%w: a link that leads out of the folder", ErrOutside)
	case link && errors.Is(err, fs.ErrNotExist):
		return Attrs{}, errors.New("a link that leads nowhere")
	case err != nil:
		return Attrs{}, reason(err)
	case link && info.IsDir():
		return Attrs{}, fmt.Errorf("%w: a link to a folder, which is not followed", ErrNotRegular)
	case !info.Mode().IsRegular():
		return Attrs{}, fmt.Errorf("%w: a %s", ErrNotRegular, kind(info.Mode()))
	}
	return Attrs{Key: key, Size: info.Size(), Pin: versionOf(info).pin()}, nil
}

// readDir returns the entries of root in the bytewise order of the keys below
// it: a folder sorts with its slash.
func readDir(root *os.Root) ([]fs.DirEntry, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	return entries, errors.Join(err, f.Close())
}

func sortKey(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}
