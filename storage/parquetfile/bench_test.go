package parquetfile

import (
	"testing"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
)

func BenchmarkDescribe(b *testing.B) {
	wide := store(b, folder(b), "flat_v1_bare.parquet")
	small := store(b, "testdata/golden", "plain.parquet")
	for name, obj := range map[string]*bucket.Object{"52 columns": wide, "5 columns": small} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Describe(b.Context(), obj); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkScan reads one column of a large row group in blocks.
func BenchmarkScan(b *testing.B) {
	obj := store(b, folder(b), "huge.one")
	sh := describe(b, obj)
	seg := sh.Segments[0]
	for _, column := range []string{"n", "x", "s", "c"} {
		b.Run(column, func(b *testing.B) {
			p, err := schema.Project(sh.Schema, [][]string{{column}})
			if err != nil {
				b.Fatal(err)
			}
			w := newWorld(b, 1<<30)
			var bytes int64
			b.ReportAllocs()
			for b.Loop() {
				s, err := Open(b.Context(), obj, sh, 0, p, w.pool, w.grant)
				if err != nil {
					b.Fatal(err)
				}
				for i := range seg.Blocks() {
					from, to := seg.Block(i)
					leases, err := s.Next(b.Context(), nil, to-from)
					if err != nil {
						b.Fatal(err)
					}
					for _, l := range leases {
						bytes += l.Bytes()
						l.Release()
					}
				}
				s.Close()
			}
			b.SetBytes(bytes / int64(b.N))
		})
	}
}
