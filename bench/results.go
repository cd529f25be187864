package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

const resultsHead = `# Results

Written by ` + "`go run ./bench -write`" + `; each section is replaced by its own bench. Ratios are medians of pairs measured in the same
round; compare within a section only.
`

// record replaces a bench's section of the results file, or adds it.
func record(path, name, table string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte(resultsHead), nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(replaceSection(string(old), name, table)), 0o644)
}

// replaceSection puts a table between the marks of its section.
func replaceSection(text, name, table string) string {
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
	section := begin + strings.TrimSpace(table) + "\n" + end
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return strings.TrimRight(text, "\n") + "\n\n" + section
	}
	return before + section + after
}
