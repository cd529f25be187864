package bucket

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// folder is a local folder.
type folder struct {
	root    *os.Root
	escapes error // what root says when a name leads out of it
}

// openFolder opens the folder at a path. ErrUnreachable does not name it, since
// the text may reach those who need not know where data lies.
func openFolder(path string) (*folder, error) {
	r, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("%w: the folder does not open: %w", ErrUnreachable, reason(err))
	}
	// The error is not exported, so the one way to know it is to provoke it.
	_, out := r.Lstat("..")
	return &folder{root: r, escapes: errors.Unwrap(out)}, nil
}

// open opens the file name, which the caller knows as key.
func (f *folder) open(key, name string, pin Pin) (*Object, error) {
	info, err := f.root.Stat(name)
	if err != nil {
		return nil, f.explain("open", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %q is a %s", ErrNotRegular, key, kind(info.Mode()))
	}
	opened, err := f.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, f.explain("open", key, err)
	}
	o, err := newFile(key, opened)
	if err == nil && pin != "" && o.Pin() != pin {
		err = fmt.Errorf("%w: %q is no longer the version listed, a new plan will have the new one", ErrChanged, key)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return o, nil
}

func (f *folder) explain(verb, key string, err error) error {
	switch {
	case errors.Is(err, f.escapes):
		return &refusal{key, ErrOutside}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &refusal{key, ErrNotFound}
	}
	return fmt.Errorf("%w: %s %q: %w", ErrUnreachable, verb, key, reason(err))
}

// put writes a file beside its place and moves it there, so that nobody ever
// sees a part of it.
func (f *folder) put(key, name string, data []byte) error {
	dir, base := path.Split(name)
	temporary := dir + "." + base + "." + rand.Text()
	if dir != "" {
		if err := f.root.MkdirAll(path.Clean(dir), 0o755); err != nil {
			return f.explain("write", key, err)
		}
	}
	err := f.write(temporary, data)
	if err == nil {
		err = f.root.Rename(temporary, name)
	}
	if err != nil {
		_ = f.root.Remove(temporary) // the first error is the one to tell
		return f.explain("write", key, err)
	}
	return nil
}

func (f *folder) write(name string, data []byte) error {
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func (f *folder) remove(key, name string) error {
	if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.explain("remove", key, err)
	}
	return nil
}

// reason strips the path from a path error: the key is named already, and the
// folder's place on this machine is nobody's business.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
