package parquetfile

import (
	"path/filepath"
	"reflect"
	"testing"
	"weak"

	"github.com/headrace/headrace/storage/snapshot"
)

// All that a shard keeps of its file comes back out of a manifest, but for what
// is found out anew.
func TestFactsComeBack(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.parquet")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		sh := describe(t, store(t, filepath.Dir(file), filepath.Base(file)))
		was := sh.Facts.(*facts)
		if len(was.deep) > 0 {
			was.deep[len(was.deep)-1] = true // whatever it is
		}
		all := snapshot.NewFacts(snapshot.Codecs{snapshot.Parquet: {Pack: Pack, Unpack: Unpack}})
		again, err := all.Shard(sh.Key, all.Add(sh))
		if err != nil {
			t.Fatal(err)
		}
		is := again.Facts.(*facts)
		if is.marks == nil || is.marks.of == nil {
			t.Error("there is no place for marks")
		}
		for _, f := range []*facts{was, is} {
			f.marks, f.dicts, f.parsed = nil, nil, weak.Pointer[footer]{}
		}
		if !reflect.DeepEqual(was, is) {
			t.Errorf("%s: %+v became %+v", file, was, is)
		}
	}
}
