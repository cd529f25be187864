package arrowfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// The integration files of the format's own project, of several versions and
// writers, read as pyarrow reads them.
func TestIntegrationFiles(t *testing.T) {
	root := corpus(t, "arrow-integration")
	var names []string
	for _, pattern := range []string{"*/*.stream", "*/*.arrow_file"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	if len(names) == 0 {
		t.Fatal("no integration files")
	}
	expectations := t.TempDir()
	if err := run(python(t), append([]string{expectations}, names...)...); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		rel, _ := filepath.Rel(root, name)
		t.Run(rel, func(t *testing.T) {
			h := newHouse(t, root)
			if strings.Contains(rel, "bigendian") {
				_, err := Describe(context.Background(), h.open(t, rel), nil)
				if !errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), "big-endian") {
					t.Fatal(err)
				}
				return
			}
			if _, sh := h.describe(t, rel); errors.Is(schema.Check(sh.Schema), schema.ErrDuplicate) {
				return // no dataset has such a schema; columns are found by name
			}
			expectation := filepath.Join(expectations, strconv.Itoa(i))
			if _, err := os.Stat(expectation); err != nil {
				expectation = asStream(t, name)
			}
			h.compare(t, rel, expectation, 1<<40)
		})
	}
}

// asStream returns a stream of what the library reads in a file or stream: for
// intervals, which pyarrow does not know.
func asStream(t *testing.T, name string) string {
	t.Helper()
	if !strings.Contains(name, "interval") {
		t.Fatalf("pyarrow does not read %s", name)
	}
	return strings.TrimSuffix(strings.TrimSuffix(name, ".arrow_file"), ".stream") + ".stream"
}

func TestFutureMetadataVersionIsRefusedByName(t *testing.T) {
	h := newHouse(t, corpus(t, "arrow-forward"))
	_, err := Describe(context.Background(), h.open(t, "schema_v6.arrow"), nil)
	if !errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), "V6") {
		t.Fatal(err)
	}
}

// Files that once crashed other readers give an error or rows, and take
// neither the process nor the memory.
func TestFuzzCorpora(t *testing.T) {
	for _, folder := range []string{"arrow-fuzz-file", "arrow-fuzz-stream"} {
		dir := corpus(t, folder)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		y := newYard(t)
		for _, e := range entries {
			t.Run(folder+"/"+e.Name(), func(t *testing.T) {
				b, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					t.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err = y.read(t, b)
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
					t.Errorf("%d bytes allocated for a file of %d", n, len(b))
				}
				t.Log(err)
			})
		}
	}
}

// ownError checks that an error is of a class that foreign bytes may have.
func ownError(t testing.TB, err error) error {
	t.Helper()
	for _, class := range []error{snapshot.ErrCorrupt, snapshot.ErrUnsupported, frame.ErrUnsupported, frame.ErrOverflow, budget.ErrExhausted, budget.ErrTooLarge} {
		if errors.Is(err, class) {
			return err
		}
	}
	t.Errorf("an error without a class: %v", err)
	return err
}
