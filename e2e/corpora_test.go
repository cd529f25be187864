package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// corpora are the folders of public files, with the extension by which a dataset takes a file as data.
var corpora = []struct{ folder, ext string }{
	{"parquet-testing", ".parquet"},
	{"duckdb", ".parquet"},
	{"parquet-fuzz", ".parquet"},
	{"arrow-integration", ".arrow"},
	{"arrow-forward", ".arrow"},
	{"arrow-fuzz-file", ".arrow"},
	{"arrow-fuzz-stream", ".arrow"},
}

// besides are the extensions of what lies beside the files: documents, expectations, scripts, values of a single cell.
var besides = []string{".md", ".txt", ".csv", ".json", ".gz", ".bin", ".py", ".test", ".yaml", ".metadata", ".value", ".proto"}

// public is one public file, served as a dataset of its own.
type public struct {
	name    string // in the corpora
	path    string // of the copy that is served
	dataset string
}

// publicFiles copies every public file into a folder of its own below root.
func publicFiles(t *testing.T, root string) (all []public) {
	t.Helper()
	from := os.Getenv("HEADRACE_CORPORA")
	if from == "" {
		t.Skip("HEADRACE_CORPORA is not set: no public files to serve")
	}
	for _, c := range corpora {
		err := filepath.WalkDir(filepath.Join(from, c.folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || slices.Contains(besides, filepath.Ext(path)) {
				return err
			}
			base := filepath.Base(path)
			if !strings.EqualFold(filepath.Ext(base), c.ext) {
				base += c.ext
			}
			name, err := filepath.Rel(from, path)
			p := public{name: filepath.ToSlash(name), dataset: fmt.Sprintf("public/%04d", len(all))}
			p.path = filepath.Join(root, p.dataset, base)
			all = append(all, p)
			if err != nil {
				return err
			}
			return copyFile(path, p.path)
		})
		if err != nil {
			t.Fatal(err) // set and missing: somebody has asked for them
		}
	}
	return all
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// TestCorpora serves all public files from one process. Each ends in the rows that it holds, or in an error with its name
// and a cause; which it is stands in a golden file. Streams of other data never notice, and memory keeps to its limit.
func TestCorpora(t *testing.T) {
	root := t.TempDir()
	files := publicFiles(t, root)
	writeHealthy(t, root)
	s := serve(t, root, "--memory", "512MiB")
	healthy, memory := watchHealthy(t, s), watchMemory(t, s)
	got := readPublic(t, s, files) + readIntegration(t, s, files)
	rows, peak := healthy(), memory()
	t.Logf("%d files; %d rows beside them; at most %d MiB of memory", len(files), rows, peak>>20)
	if rows < 1_000_000 {
		t.Errorf("only %d rows came beside the public files", rows)
	}
	const detector = 160 << 20 // what the race detector has in the process, at most: 130 MiB were seen
	if peak > 512<<20+detector {
		t.Errorf("the gateway took %d MiB under a limit of 512 MiB", peak>>20)
	}
	compareGolden(t, "testdata/corpora.golden", got)
	for line := range strings.Lines(got) {
		if strings.Contains(line, "UNEXPLAINED") {
			t.Errorf("nobody has explained this: %s", line)
		}
	}
}

// readPublic has pyarrow read all files but those that come with their values in JSON, and returns how each ended.
func readPublic(t *testing.T, s *server, files []public) string {
	t.Helper()
	var list [][3]string
	for _, f := range files {
		if !withValues(f) {
			list = append(list, [3]string{f.dataset, f.path, f.name})
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "files.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter(t), "testdata/corpora.py", s.uri, path)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reading public files: %v after\n%.2000s\n%s", err, lastLines(string(out), 3), errOut.String())
	}
	return string(out)
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// compareGolden compares a text with a file, or writes the file anew when that was asked for.
func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]bool)
	for line := range strings.Lines(string(b)) {
		want[line] = true
	}
	for line := range strings.Lines(got) {
		if !want[line] {
			t.Errorf("not in %s: %s", path, line)
		}
		delete(want, line)
	}
	for line := range want {
		t.Errorf("only in %s: %s", path, line)
	}
}
