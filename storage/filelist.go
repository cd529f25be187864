package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// maxList is the largest list of files, in bytes.
const maxList = 64 << 20

// listFile returns the key of the object that lists the mount's files, "" if
// globs select them.
func (m *Mount) listFile() string {
	if len(m.Files) == 1 {
		if key, ok := strings.CutPrefix(m.Files[0], "@"); ok {
			return key
		}
	}
	return ""
}

// readList reads the list of a mount's files: one key a line, relative to the
// mount's URL. Nobody else decides then what belongs to the dataset: a list may
// name files with any name, and the live files of a table.
func readList(ctx context.Context, b *bucket.Bucket, key string) (map[string]bool, error) {
	obj, err := b.Open(ctx, key, "")
	if err != nil {
		return nil, fmt.Errorf("list of files: %w", err)
	}
	defer func() { _ = obj.Close() }() // only read: nothing to tell
	if obj.Size() > maxList {
		return nil, fmt.Errorf("%w: the list of files %q has %d bytes, the limit is %d", snapshot.ErrUnsupported, key, obj.Size(), int64(maxList))
	}
	text := make([]byte, obj.Size())
	if err := obj.ReadAt(ctx, text, 0); err != nil {
		return nil, fmt.Errorf("list of files: %w", err)
	}
	keys := map[string]bool{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch {
		case line == "":
		case keys[line]:
			return nil, fmt.Errorf("%w: line %d of the list of files %q names %q again", snapshot.ErrUnsupported, number, key, line)
		case line != path.Clean(line) || path.IsAbs(line) || line == ".." || strings.HasPrefix(line, "../"):
			return nil, fmt.Errorf("%w: line %d of the list of files %q: %q is no key: keys are relative to the dataset's URL", snapshot.ErrUnsupported, number, key, line)
		default:
			keys[line] = true
		}
	}
	return keys, nil
}

// lacks says which of the listed keys are not among files, which are sorted.
func lacks(listed map[string]bool, files []bucket.Attrs, exclude []string) error {
	found := make(map[string]bool, len(files))
	for _, f := range files {
		found[f.Key] = true
	}
	var missing []string
	for key := range listed {
		if !found[key] && !matchAny(exclude, key) {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	more := ""
	if len(missing) > 1 {
		more = fmt.Sprintf(" and %d more", len(missing)-1)
	}
	return fmt.Errorf("%w: %q%s, named by the list of files", bucket.ErrNotFound, missing[0], more)
}

// checkFiles refuses globs that could never match, and lists that are not alone.
func (m *Mount) checkFiles() error {
	if key := m.listFile(); key != "" {
		if m.Tree {
			return errors.New("a list of files belongs to one dataset, not to a tree")
		}
		return checkGlobs(m.Exclude)
	}
	return checkGlobs(append(slices.Clone(m.Files), m.Exclude...))
}

func checkGlobs(globs []string) error {
	for _, g := range globs {
		if strings.HasPrefix(g, "@") {
			return fmt.Errorf("%q: a list of files is the only item of files", g)
		}
		if err := checkGlob(g); err != nil {
			return err
		}
	}
	return nil
}
