package wire

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The page on the wire is a specification: its examples that need no gateway are run, its table is compared.

func page(t *testing.T) (root, text string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	return root, string(b)
}

func TestDocumentedExamplesRun(t *testing.T) {
	root, text := page(t)
	interpreter, named := os.LookupEnv("HEADRACE_PYTHON")
	if !named {
		interpreter = filepath.Join(root, ".venv", "bin", "python")
		if _, err := os.Stat(interpreter); err != nil {
			t.Skip("no .venv, and HEADRACE_PYTHON is not set")
		}
	}
	blocks := strings.Split(text, "```python\n# runs\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("no example is marked as one that runs")
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		cmd := exec.Command(interpreter, "-c", code)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, code)
		}
	}
}

func TestDocumentedFieldsAreTheFields(t *testing.T) {
	_, text := page(t)
	_, table, _ := strings.Cut(text, "| field | default | meaning |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) != len(fields) {
		t.Fatalf("%d rows for %d fields", len(rows), len(fields))
	}
	for i, f := range fields {
		if !strings.HasPrefix(rows[i], "| `"+f.name+"` |") {
			t.Errorf("row %d should be %s: %s", i, f.name, rows[i])
		}
	}
}
