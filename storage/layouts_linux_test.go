package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// hive serves a folder whose k=v folders are columns.
func hive(t *testing.T, dir string, rule schema.Rule) *rig {
	t.Helper()
	return newRig(t, Options{Mounts: []Mount{{Name: "d", URL: dir, Hive: true, Schema: rule}}})
}

func project(t *testing.T, s *snapshot.Snapshot, columns ...string) *schema.Projection {
	t.Helper()
	paths := make([][]string, len(columns))
	for i, c := range columns {
		paths[i] = []string{c}
	}
	p, err := schema.Project(s.Schema, paths)
	must(t, err)
	return p
}

func TestPartitionsAreColumns(t *testing.T) {
	for _, ext := range []string{"parquet", "arrow"} {
		files := map[string]string{}
		for i := range 4 {
			year, tag := fmt.Sprint(2020+i), []string{"a", "Brand%2321", "__HIVE_DEFAULT_PARTITION__", "ü"}[i]
			files[fmt.Sprintf("year=%s/tag=%s/part.%s", year, tag, ext)] = fmt.Sprintf("%s%d.%s", ext[:1], i, ext)
		}
		r := hive(t, folder(t, files), schema.Rule{})
		s := r.newest("d")
		if got := fmt.Sprint(columnNames(s.Schema)); got != "[x s year tag]" {
			t.Fatal(got)
		}
		for _, columns := range [][]string{{"x", "year", "tag"}, {"x", "tag"}} {
			for i, row := range r.rows(s, project(t, s, columns...)) {
				want := []string{fmt.Sprint(i), fmt.Sprint(2020 + i/100), []string{"a", "Brand#21", "null", "ü"}[i/100]}
				if len(columns) == 2 {
					want = []string{want[0], want[2]}
				}
				if !reflect.DeepEqual(row, want) {
					t.Fatalf("%s: row %d is %q, want %q", ext, i, row, want)
				}
			}
		}
		rows := r.rows(s, project(t, s, "tag", "year"))
		if len(rows) != 400 || rows[399][0] != "ü" || rows[0][1] != "2020" {
			t.Errorf("%s: %d rows of folders' columns alone: %q", ext, len(rows), rows[:1])
		}
	}
}

// Missing folders, files of several schemas and folders' columns go together.
func TestPartitionsWidened(t *testing.T) {
	dir := folder(t, map[string]string{"k=7/a.parquet": "narrow.parquet", "b.parquet": "wide.parquet"})
	r := hive(t, dir, schema.Rule{Widen: true})
	s := r.newest("d")
	rows := r.rows(s, project(t, s, "k", "x", "more"))
	if len(rows) != 200 || !reflect.DeepEqual(rows[0], []string{"null", "100", "word 0"}) || !reflect.DeepEqual(rows[199], []string{"7", "99", "null"}) {
		t.Errorf("%q, %q", rows[0], rows[199])
	}
	given := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Float32, Nullable: true}, {Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	r = hive(t, dir, schema.Rule{Given: given})
	s = r.newest("d")
	if rows := r.rows(s, schema.All(s.Schema)); len(rows) != 200 || !reflect.DeepEqual(rows[199], []string{"7", "99"}) {
		t.Errorf("%q", rows)
	}
}

// oddNames are keys that stores and gateways were seen to stumble over.
var oddNames = []string{
	"a+b", "t=10:00", "x=y&z", "ü", "😀", "with space", "100%", "%23", "%20", "%2F", "a%2Fb", "#hash", "q?x=1", "semi;colon", `quote"s`, "back\\slash", "new\nline", "tab\t", "dots..",
}

func TestB51OddKeysAreRead(t *testing.T) {
	files := map[string]string{}
	for i, name := range oddNames {
		files[name+"/"+name+".parquet"] = fmt.Sprintf("p%d.parquet", i%4)
	}
	dir := folder(t, files)
	r := one(t, dir)
	s := r.newest("d")
	if len(s.Shards) != len(oddNames) {
		t.Fatalf("%d shards, want %d", len(s.Shards), len(oddNames))
	}
	for i, sh := range s.Shards {
		var name string
		for _, n := range oddNames {
			if sh.Key == n+"/"+n+".parquet" {
				name = n
			}
		}
		if sh.Err != nil || name == "" {
			t.Errorf("%q: %v", sh.Key, sh.Err)
			continue
		}
		if x, err := r.read(s, s.Blocks([]int{i})); err != nil || len(x) != 100 {
			t.Errorf("%q: %d rows, %v", sh.Key, len(x), err)
		}
	}
}

// Keys are taken as they are; only values of folders are decoded, once.
func TestB53PathsAreDecodedOnce(t *testing.T) {
	dir := folder(t, map[string]string{
		"brand=Brand%2321/a.parquet": "p0.parquet", "brand=Brand#21/a.parquet": "p1.parquet", "brand=Brand%252321/a.parquet": "p2.parquet",
	})
	r := hive(t, dir, schema.Rule{})
	s := r.newest("d")
	rows := r.rows(s, project(t, s, "x", "brand"))
	for i, key := range []string{"brand=Brand#21/a.parquet", "brand=Brand%2321/a.parquet", "brand=Brand%252321/a.parquet"} {
		want := []string{[]string{"100", "0", "200"}[i], []string{"Brand#21", "Brand#21", "Brand%2321"}[i]}
		if s.Shards[i].Key != key || !reflect.DeepEqual(rows[100*i], want) {
			t.Errorf("%q has %q, want %q", s.Shards[i].Key, rows[100*i], want)
		}
	}
}

func TestB50NoFileIsLeftOutOfLongListings(t *testing.T) {
	dir := folder(t, map[string]string{"source": "required.parquet"})
	for i := range 2501 {
		must(t, os.Link(filepath.Join(dir, "source"), filepath.Join(dir, fmt.Sprintf("part %04d.parquet", i))))
	}
	s := one(t, dir).newest("d")
	if len(s.Shards) != 2501 || s.Rows() != 3*2501 {
		t.Errorf("%d shards, %d rows", len(s.Shards), s.Rows())
	}
}

// While an object is overwritten again and again, every read is of one version or an error.
func TestB57OverwrittenWhileItIsRead(t *testing.T) {
	dir := folder(t, map[string]string{"a.parquet": "p0.parquet"})
	r := one(t, dir)
	var versions [][]byte
	for i := range 2 {
		content, err := os.ReadFile(filepath.Join(corpus, fmt.Sprintf("p%d.parquet", i)))
		must(t, err)
		versions = append(versions, content)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(dir, "a.parquet"), versions[i%2], 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	for range 8 {
		wg.Go(func() {
			for running := true; running; {
				select {
				case <-done:
					running = false // once more, undisturbed
				default:
				}
				s, err := r.Snapshot(context.Background(), "d", "")
				var x []int64
				if err == nil {
					x, err = r.read(s, s.Blocks(nil))
				}
				if err == nil && (len(x) != 100 || counts(x, x[0], 100) != nil || x[0] != 0 && x[0] != 100) {
					t.Errorf("rows of two versions: %v", x)
				}
				if err != nil && !running {
					t.Errorf("after the last change: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestListOfFiles(t *testing.T) {
	files := map[string]string{
		"train.txt": "=odd name\r\nsub/_b.parquet\n\nc.parquet\n", "odd name": "p0.parquet", "sub/_b.parquet": "p1.parquet", "c.parquet": "p2.parquet",
		"left/out.parquet": "p3.parquet", "_delta_log/0.json": "={}",
	}
	dir := folder(t, files)
	mount := Mount{Name: "d", URL: dir, Files: []string{"@train.txt"}, Exclude: []string{"c.*"}}
	r := newRig(t, Options{Mounts: []Mount{mount}})
	s := r.newest("d")
	if got := keys(s); got != "odd name sub/_b.parquet" {
		t.Errorf("%s", got)
	}
	for text, says := range map[string]string{
		"gone.parquet\nodd name": `"gone.parquet", named by the list`,
		"a\nb\nc":                `"a" and 2 more, named by`,
		"odd name\nodd name":     `line 2`,
		"../odd name":            `line 1`,
		"/odd name":              `line 1`,
		"sub/./b":                `line 1`,
	} {
		must(t, os.WriteFile(filepath.Join(dir, "train.txt"), []byte(text), 0o600))
		if _, err := r.Snapshot(t.Context(), "d", ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v does not say %s", text, err, says)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "train.txt")))
	if _, err := r.Snapshot(t.Context(), "d", ""); !errors.Is(err, bucket.ErrNotFound) || !strings.Contains(err.Error(), "train.txt") {
		t.Errorf("%v, want ErrNotFound", err)
	}
	for _, bad := range []Mount{{Name: "d", URL: dir, Files: []string{"@a", "b"}}, {Name: "d", URL: dir, Exclude: []string{"@a"}}, {URL: dir, Tree: true, Files: []string{"@a"}}} {
		if _, err := New(t.Context(), Options{Mounts: []Mount{bad}}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
