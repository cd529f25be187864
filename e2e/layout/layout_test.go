// Package layout keeps the rules of the house that only reading the source can keep. It needs no build of the product, so it
// is the cheapest test to fail.
package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const module = "github.com/headrace/headrace"

// maxLines is where a file has stopped being one idea. The aim is 500.
const maxLines = 700

// imports is the import table: what each package may import of ours. A package that is not here is not in the house.
var imports = map[string][]string{
	"schema":             {},
	"storage/budget":     {},
	"storage/frame":      {"storage/budget"},
	"storage/bucket":     {},
	"storage/buckettest": {"storage/bucket"},
	"storage/arrowtest":  {},
	"storage/snapshot":   {"schema"},
	"storage/parquetfile": {
		"schema", "storage/budget", "storage/bucket", "storage/frame", "storage/parquetfile/encoding", "storage/snapshot",
	},
	"storage/parquetfile/encoding": {},
	"storage/arrowfile":            {"schema", "storage/budget", "storage/bucket", "storage/frame", "storage/snapshot"},
	"storage/cache":                {"storage/budget", "storage/frame"},
	"storage/message":              {},
	"storage/disk":                 {"storage/budget", "storage/cache", "storage/frame", "storage/message"},
	"storage": {
		"schema", "storage/arrowfile", "storage/bucket", "storage/budget", "storage/frame", "storage/parquetfile",
		"storage/snapshot",
	},
	"sampler":        {},
	"gateway/gather": {"storage/budget", "storage/frame"},
	"gateway/feed": {
		"gateway/gather", "sampler", "schema", "storage", "storage/budget", "storage/cache", "storage/frame",
		"storage/snapshot",
	},
	"gateway/wire":  {},
	"gateway/codec": {"storage/budget", "storage/frame", "storage/message"},
	"gateway/shm":   {"storage/budget"},
	"auth":          {},
	"gateway": {
		"auth", "gateway/codec", "gateway/feed", "gateway/gather", "gateway/shm", "gateway/wire", "sampler", "schema", "storage", "storage/arrowfile",
		"storage/bucket", "storage/budget", "storage/cache", "storage/disk", "storage/frame", "storage/parquetfile", "storage/snapshot",
	},
	"gateway/client": {"gateway/wire", "schema"},
	"configs":        {},
	"cmd/headrace":   {anything},
	"e2e":            {"gateway/client", "gateway/wire"},
	"e2e/layout":     {},
	"bench":          {anything},
}

const anything = "*"

// kits are packages for tests only: all tests may import them, and nothing else may.
var kits = []string{"storage/arrowtest", "storage/buckettest"}

// keepers says which packages may import what belongs to one place: gRPC and Flight are spoken at the edge, telemetry is
// made in one file, object stores are opened in one package, flags are read by commands.
var keepers = []struct {
	imports []string
	places  []string // packages, or single files
	tests   []string // packages whose tests may as well
}{
	{
		imports: []string{"google.golang.org/grpc", "github.com/apache/arrow-go/v18/arrow/flight"},
		places:  []string{"gateway", "gateway/codec", "gateway/client", "cmd/headrace", "bench"},
		tests:   []string{"e2e"},
	},
	{
		imports: []string{"go.opentelemetry.io", "github.com/prometheus"},
		places:  []string{"cmd/headrace/telemetry.go"},
		tests:   []string{"cmd/headrace"},
	},
	{
		imports: []string{"gocloud.dev", "github.com/aws", "cloud.google.com", "github.com/Azure"},
		places:  []string{"storage/bucket", "storage/buckettest"},
	},
	{
		imports: []string{"flag", "github.com/spf13"},
		places:  []string{"cmd/headrace", "bench"},
		tests:   []string{anything},
	},
}

// drawers are names of packages that say nothing about what is inside.
var drawers = []string{"util", "utils", "common", "helper", "helpers", "types", "base", "misc", "shared"}

// goroutines lists the functions that may use a bare go statement, with what waits for it. Everywhere else goroutines
// are started through an errgroup.
var goroutines = map[string]string{
	"storage/buckettest/servers.go start": "the clean-up of the test that started the server",
}

// source is one parsed Go file of the repository.
type source struct {
	path string // from the root, with slashes
	dir  string
	text []byte
	file *ast.File
	fset *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// generated reports the standard mark of files that no person edits.
func (s source) generated() bool { return ast.IsGenerated(s.file) }

// sources parses every Go file of the repository, whatever its build tags: the rules hold on every platform.
func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var all []source
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(relative)
		all = append(all, source{path: slashed, dir: path.Dir(slashed), text: text, file: file, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files found")
	}
	return all
}

// paths yields the import paths of a file.
func (s source) paths(t *testing.T) []string {
	t.Helper()
	found := make([]string, 0, len(s.file.Imports))
	for _, spec := range s.file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, name)
	}
	return found
}

// stands lists what a package stands on, itself included: what its tests may import.
func stands(pkg string) map[string]bool {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, below := range imports[name] {
			visit(below)
		}
	}
	visit(pkg)
	return seen
}

// under reports whether name is the package prefix or inside it.
func under(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix+"/")
}

func TestLayoutImportTable(t *testing.T) {
	for _, s := range sources(t) {
		allowed, known := imports[s.dir]
		if !known {
			t.Errorf("%s: package %s is not in the import table", s.path, s.dir)
			continue
		}
		reach := stands(s.dir)
		for _, name := range s.paths(t) {
			ours, internal := strings.CutPrefix(name, module+"/")
			if !internal {
				continue
			}
			permitted := slices.Contains(allowed, ours) || slices.Contains(allowed, anything)
			if s.test() {
				permitted = permitted || reach[ours] || slices.Contains(kits, ours)
			}
			if !permitted {
				t.Errorf("%s: %s may not import %s", s.path, s.dir, ours)
			}
		}
	}
}

func TestLayoutKeepers(t *testing.T) {
	for _, s := range sources(t) {
		for _, name := range s.paths(t) {
			for _, k := range keepers {
				guarded := slices.ContainsFunc(k.imports, func(prefix string) bool { return under(name, prefix) })
				if !guarded || slices.Contains(k.places, s.dir) || slices.Contains(k.places, s.path) {
					continue
				}
				if s.test() && (slices.Contains(k.tests, s.dir) || slices.Contains(k.tests, anything)) {
					continue
				}
				t.Errorf("%s: %s belongs to %s", s.path, name, strings.Join(k.places, ", "))
			}
		}
	}
}

func TestLayoutPackages(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		name := strings.TrimSuffix(s.file.Name.Name, "_test")
		if slices.Contains(drawers, name) || slices.Contains(drawers, path.Base(s.dir)) {
			t.Errorf("%s: %s names no idea; name the package for what it holds", s.path, name)
		}
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + path.Base(s.dir) + " "
		}
		said := s.file.Doc != nil && strings.HasPrefix(s.file.Doc.Text(), want)
		documented[s.dir] = documented[s.dir] || said
	}
	for dir, said := range documented {
		if !said {
			t.Errorf("%s: no sentence that says what the package is", dir)
		}
	}
}

func TestLayoutGoroutines(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, decl := range s.file.Decls {
			where := s.path
			if fn, ok := decl.(*ast.FuncDecl); ok {
				where += " " + fn.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if stmt, ok := n.(*ast.GoStmt); ok {
					used[where] = true
					if goroutines[where] == "" {
						t.Errorf("%s: a bare go statement in %q: use an errgroup, or list it with what waits for it",
							s.fset.Position(stmt.Pos()), where)
					}
				}
				return true
			})
		}
	}
	for where := range goroutines {
		if !used[where] {
			t.Errorf("%q has no go statement any more: take it off the list", where)
		}
	}
}

func TestLayoutFileLength(t *testing.T) {
	for _, s := range sources(t) {
		if lines := bytes.Count(s.text, []byte("\n")); lines >= maxLines && !s.generated() {
			t.Errorf("%s: %d lines; split it", s.path, lines)
		}
	}
}

// TestLayoutLinter compares the linter's copy of the import table with this one, so that neither drifts.
func TestLayoutLinter(t *testing.T) {
	text, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Mode  string   `yaml:"list-mode"`
						Files []string `yaml:"files"`
						Allow []string `yaml:"allow"`
					} `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	rules := config.Linters.Settings.Depguard.Rules
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		if slices.Contains(imports[pkg], anything) || under(pkg, "e2e") { // these are only tests, which the linter leaves out
			continue
		}
		rule, ok := rules[pkg]
		if !ok {
			t.Errorf("the linter has no rule for %s", pkg)
			continue
		}
		var want []string
		for _, name := range imports[pkg] {
			want = append(want, module+"/"+name+"$")
		}
		slices.Sort(want)
		slices.Sort(rule.Allow)
		files := []string{fmt.Sprintf("**/%s/*.go", pkg), "!$test"}
		if !slices.Equal(rule.Allow, want) || !slices.Equal(rule.Files, files) || rule.Mode != "lax" {
			t.Errorf("the linter's rule for %s differs: %+v, want %v", pkg, rule, want)
		}
	}
}
