package storage

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// found is what one listing has of one dataset.
type found struct {
	dataset *dataset
	number  int64          // listings of a mount are counted
	folder  string         // of the dataset in its mount: empty, or ends in a slash
	files   []bucket.Attrs // data files, keys relative to the folder, sorted
	skipped int
	err     error // why the folder cannot be a dataset
}

// discovery sorts the listing of one mount into datasets.
type discovery struct {
	mount   *Mount
	base    string // the name of the mount's folder
	number  int64
	listed  map[string]bool   // the only files there are; nil: globs and rules decide
	sets    map[string]*found // by folder
	skipped map[string]int    // by folder of a dataset that may not exist
	tables  map[string]string // kind by folder
}

func newDiscovery(m *Mount, number int64) *discovery {
	base, _ := bucket.Base(m.URL) // the mount was made, so it has one
	return &discovery{mount: m, base: base, number: number, sets: map[string]*found{}, skipped: map[string]int{}, tables: map[string]string{}}
}

func (d *discovery) set(folder string) *found {
	if d.sets[folder] == nil {
		d.sets[folder] = &found{number: d.number, folder: folder}
	}
	return d.sets[folder]
}

// visit takes one entry of the listing.
func (d *discovery) visit(a bucket.Attrs) error {
	if folder, kind := tableMark(d.base, a.Key); kind != "" && d.listed == nil {
		d.tables[folder] = kind
	}
	folder := d.datasetOf(a.Key)
	switch {
	case strings.HasSuffix(a.Key, "/"):
		if hidden(path.Base(a.Key)) && d.listed == nil {
			return fs.SkipDir
		}
		if a.Err != nil {
			d.set(folder).err = fmt.Errorf("folder %q cannot be read: %w", a.Key, a.Err)
		}
	case !d.selects(a.Key):
		d.skipped[folder]++
	default:
		set := d.set(folder)
		a.Key = strings.TrimPrefix(a.Key, folder)
		set.files = append(set.files, a)
	}
	return nil
}

func (d *discovery) selects(key string) bool {
	if d.listed != nil {
		return d.listed[key] && !matchAny(d.mount.Exclude, key)
	}
	return d.mount.selects(key)
}

// datasetOf returns the folder of the dataset that a key belongs to: in a tree
// the one it lies in, below which only k=v folders are its own.
func (d *discovery) datasetOf(key string) string {
	if !d.mount.Tree {
		return ""
	}
	start := 0
	for {
		i := strings.IndexByte(key[start:], '/')
		if i < 0 || partition(key[start:start+i]) {
			return key[:start]
		}
		start += i + 1
	}
}

// finish returns the datasets by name. base is the name of the mount's own folder.
func (d *discovery) finish(base string) map[string]*found {
	d.refuseTables()
	if !d.mount.Tree {
		f := d.set("")
		if err := lacks(d.listed, f.files, d.mount.Exclude); err != nil {
			f.err = err
		}
	}
	sets := make(map[string]*found, len(d.sets))
	for folder, f := range d.sets {
		f.skipped = d.skipped[folder]
		name := strings.TrimSuffix(folder, "/")
		if folder == "" {
			name = base
		}
		if sets[name] != nil {
			f = &found{number: d.number, err: fmt.Errorf("%w: files in the folder itself and in its sub-folder %q claim the same name: rename the sub-folder", snapshot.ErrUnsupported, base+"/")}
		}
		sets[name] = f
	}
	return sets
}

// refuseTables turns each folder that is a table into a dataset that says so.
// A mount that is one dataset is refused when data of a table would be in it.
func (d *discovery) refuseTables() {
	folders := make([]string, 0, len(d.tables))
	for folder := range d.tables {
		folders = append(folders, folder)
	}
	slices.Sort(folders)
	for _, table := range folders {
		within := func(key string) bool { return strings.HasPrefix(key, table) }
		at := "the folder"
		if table != "" {
			at = fmt.Sprintf("the folder %q", table)
		}
		err := fmt.Errorf("%w: %s is %s: which of its files are live is not what a listing shows: write it out as plain files, or name its live files in a list (files: [\"@LIST\"])", snapshot.ErrUnsupported, at, d.tables[table])
		if !d.mount.Tree {
			if f := d.set(""); table == "" || slices.ContainsFunc(f.files, func(a bucket.Attrs) bool { return within(a.Key) }) {
				f.err = err
			}
			continue
		}
		for folder := range d.sets {
			if within(folder) {
				delete(d.sets, folder)
			}
		}
		d.set(table).err = err
	}
}
