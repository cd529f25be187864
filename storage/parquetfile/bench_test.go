package parquetfile

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
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
				s, err := (Options{}).Open(b.Context(), obj, sh, 0, p, w.pool, w.grant)
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

// BenchmarkSkip opens a large row group and reads 256 rows at three quarters of it.
func BenchmarkSkip(b *testing.B) {
	obj := store(b, folder(b), "huge.one")
	for _, known := range []bool{false, true} {
		for _, column := range []string{"n", "x", "s", "c"} {
			b.Run(fmt.Sprintf("%s/known=%t", column, known), func(b *testing.B) {
				sh := describe(b, obj)
				p, err := schema.Project(sh.Schema, [][]string{{column}})
				if err != nil {
					b.Fatal(err)
				}
				w := newWorld(b, 1<<30)
				for b.Loop() {
					if !known {
						sh = describe(b, obj)
					}
					readAt(b, w, obj, sh, p, sh.Segments[0].Rows*3/4)
				}
			})
		}
	}
}

func readAt(b *testing.B, w *world, obj *bucket.Object, sh *snapshot.Shard, p *schema.Projection, row int64) {
	s, err := (Options{}).Open(b.Context(), obj, sh, 0, p, w.pool, w.grant)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Skip(b.Context(), row); err != nil {
		b.Fatal(err)
	}
	leases, err := s.Next(b.Context(), nil, 256)
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range leases {
		l.Release()
	}
}
