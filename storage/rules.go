package storage

import (
	"fmt"
	"path"
	"strings"

	"github.com/headrace/headrace/storage/snapshot"
)

// extensions are those of data files, with the format they promise. For IPC
// the content decides between file and stream.
var extensions = map[string]snapshot.Format{
	".parquet": snapshot.Parquet,
	".pq":      snapshot.Parquet,
	".arrow":   snapshot.Arrow,
	".arrows":  snapshot.Arrow,
	".feather": snapshot.Arrow,
	".ipc":     snapshot.Arrow,
}

// hidden tells whether a name marks what writers and file systems keep beside the data.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// partition tells whether a folder's name is of the form k=v: what is in it
// belongs to the dataset of the folder it is in.
func partition(name string) bool { return strings.Index(name, "=") > 0 }

// tableMark tells whether the key of a folder (it ends in a slash) or of a
// file shows that some folder is a table, whose live files no listing shows.
// It returns that folder's key ("" or ending in a slash). base is the name of
// the folder that keys are relative to.
func tableMark(base, key string) (folder, kind string) {
	parent, name := path.Split(strings.TrimSuffix(key, "/"))
	isFolder := strings.HasSuffix(key, "/")
	switch {
	case isFolder && name == "_delta_log":
		return parent, "a Delta Lake table"
	case isFolder && name == ".hoodie":
		return parent, "a Hudi table"
	case isFolder && name == "_versions" && strings.HasSuffix(base+"/"+parent, ".lance/"):
		return parent, "a Lance dataset"
	case !isFolder && strings.HasSuffix(name, ".metadata.json") && path.Base(parent) == "metadata":
		return strings.TrimSuffix(parent, "metadata/"), "an Iceberg table"
	}
	return "", ""
}

// selects tells whether a mount takes the file with the given key as data.
func (m *Mount) selects(key string) bool {
	if hidden(path.Base(key)) || matchAny(m.Exclude, key) {
		return false
	}
	if len(m.Files) > 0 {
		return matchAny(m.Files, key)
	}
	return extensions[strings.ToLower(path.Ext(key))] != ""
}

func matchAny(globs []string, key string) bool {
	for _, g := range globs {
		if match(strings.Split(g, "/"), strings.Split(key, "/")) {
			return true
		}
	}
	return false
}

// match compares part by part; "**" stands for any number of parts.
func match(glob, key []string) bool {
	for len(glob) > 0 {
		if glob[0] == "**" {
			for i := range len(key) + 1 {
				if match(glob[1:], key[i:]) {
					return true
				}
			}
			return false
		}
		if len(key) == 0 {
			return false
		}
		if ok, err := path.Match(glob[0], key[0]); err != nil || !ok {
			return false
		}
		glob, key = glob[1:], key[1:]
	}
	return len(key) == 0
}

// checkGlob refuses what could never match: bad patterns, absolute ones.
func checkGlob(glob string) error {
	for _, part := range strings.Split(glob, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("glob %q: patterns are relative, without empty parts, '.' and '..'", glob)
		}
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("glob %q: %w", glob, err)
		}
	}
	return nil
}
