package arrowfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

// sparse writes a stream of batches of rows vectors of 1 KiB, all zero, at a few kilobytes of disk: the bodies are
// holes. It returns the stream's bytes.
func sparse(t testing.TB, path string, batches, rows int) int64 {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: &arrow.FixedSizeBinaryType{ByteWidth: 1024}}}, nil)
	body := memory.NewBufferBytes(make([]byte, 1024*rows))
	data := array.NewData(s.Field(0).Type, rows, []*memory.Buffer{nil, body}, nil, 0, 0)
	var head, both bytes.Buffer
	w := ipc.NewWriter(&both, ipc.WithSchema(s))
	batch := array.NewRecordBatch(s, []arrow.Array{array.MakeFromData(data)}, int64(rows))
	if err := w.Write(batch); err != nil {
		t.Fatal(err)
	}
	first := both.Len()
	if err := w.Write(batch); err != nil {
		t.Fatal(err)
	}
	message := both.Bytes()[first:]
	head.Write(both.Bytes()[:first-len(message)]) // the schema
	message = message[:len(message)-1024*rows]
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(head.Len())
	if _, err := f.Write(head.Bytes()); err != nil {
		t.Fatal(err)
	}
	for range batches {
		if _, err := f.WriteAt(message, at); err != nil {
			t.Fatal(err)
		}
		at += int64(len(message) + 1024*rows)
	}
	if err := f.Truncate(at); err != nil {
		t.Fatal(err)
	}
	return at
}

// each hands over the leases on all frames of a segment.
func (h *house) each(obj *bucket.Object, sh *snapshot.Shard, segment int, step int64, visit func(*frame.Lease)) error {
	ctx := context.Background()
	s, err := Open(ctx, obj, sh, segment, schema.All(schema.Plain(sh.Schema)), h.pool, h.grant)
	if err != nil {
		return err
	}
	defer s.Close()
	for left := sh.Segments[segment].Rows; left > 0; left -= min(step, left) {
		leases, err := s.Next(ctx, nil, min(step, left))
		if err != nil {
			return err
		}
		for _, l := range leases {
			visit(l)
		}
	}
	return nil
}

// hold keeps a file open for writing, so that nobody gets a lease on it: it is read instead of mapped.
func hold(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
}

// drop takes a file out of the page cache.
func drop(b testing.TB, path string) {
	b.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		b.Fatal(err)
	}
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScan compares frames in place with frames that are read and copied. As gRPC does, it copies what it gets
// to a small buffer, so that every byte is looked at.
func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	for _, kib := range []int{64, 128, 256, 512, 1024, 3840, 32 << 10} {
		name := fmt.Sprintf("%d.arrows", kib)
		path := filepath.Join(dir, name)
		batches := (256 << 10) / kib
		sparse(b, path, batches, kib)
		content, err := os.ReadFile(path) // real blocks instead of holes
		if err == nil {
			err = os.WriteFile(path, content, 0o644)
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, temperature := range []string{"warm", "cold"} {
			for _, way := range []string{"mapped", "read"} {
				b.Run(fmt.Sprintf("%dKiB/%s/%s", kib, temperature, way), func(b *testing.B) {
					if way == "read" {
						hold(b, path)
					}
					h := newHouseOf(b, dir, 1<<30)
					h.pool = frame.NewPool(frame.Options{Idle: 64 << 20}) // like that of the gateway
					benchmarkScan(b, h, name, func() {
						if temperature == "cold" {
							drop(b, path)
						}
					})
				})
			}
		}
		_ = os.Remove(path)
	}
}

func benchmarkScan(b *testing.B, h *house, name string, before func()) {
	obj, sh := h.describe(b, name)
	b.SetBytes(obj.Size())
	var used time.Duration
	wire := make([]byte, 32<<10)
	for b.Loop() {
		b.StopTimer()
		before()
		began := cpu()
		b.StartTimer()
		for i := range sh.Segments {
			err := h.each(obj, sh, i, 3840, func(l *frame.Lease) {
				for _, c := range l.Batch().Columns() {
					d := c.Data()
					r := bytes.NewReader(d.Buffers()[1].Bytes()[1024*d.Offset() : 1024*(d.Offset()+d.Len())])
					for {
						if _, err := r.Read(wire); err == io.EOF {
							break
						}
					}
				}
				l.Release()
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		used += cpu() - began
	}
	b.ReportMetric(used.Seconds()/(float64(b.N)*float64(obj.Size())/1e9), "cpu-s/GB")
}

// Frames outlive a writer with the old bytes; what was not shown yet is an error if he changed something, and is read
// if he did not.
func TestB78_WritersBetweenFrames(t *testing.T) {
	for _, c := range []struct {
		what, script string
		err          error
	}{
		{"appended to", `echo more >> "$F"`, bucket.ErrChanged},
		{"cut short", `: > "$F"`, bucket.ErrChanged},
		{"overwritten", `printf changed | dd of="$F" bs=1 seek=20000000 conv=notrunc 2>/dev/null`, bucket.ErrChanged},
		{"opened for writing", `: <> "$F"`, nil},
		{"replaced", `echo new > "$F.new" && mv "$F.new" "$F"`, nil},
		{"deleted", `rm "$F"`, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			ctx, dir := context.Background(), t.TempDir()
			path := filepath.Join(dir, "a.arrows")
			const rows, step = 32 << 10, 4 << 10
			sparse(t, path, 1, rows)
			h := newHouse(t, dir)
			obj, sh := h.describe(t, "a.arrows")
			s, err := Open(ctx, obj, sh, 0, schema.All(schema.Plain(sh.Schema)), h.pool, h.grant)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			first, err := s.Next(ctx, nil, step)
			if err != nil {
				t.Fatal(err)
			}
			defer first[0].Release()
			if n := h.pool.Stats().Mapped; n != first[0].Bytes() {
				t.Errorf("%d bytes mapped", n)
			}
			cmd := exec.Command("sh", "-c", c.script)
			cmd.Env = append(os.Environ(), "F="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			next, err := s.Next(ctx, nil, step)
			if !errors.Is(err, c.err) {
				t.Errorf("the next frame: %v, want %v", err, c.err)
			}
			for _, l := range append(next, first[0].Share()) {
				x := l.Batch().Column(0).(*array.FixedSizeBinary)
				for i := range x.Len() {
					if !bytes.Equal(x.Value(i), make([]byte, 1024)) {
						t.Fatalf("row %d has other bytes", i)
					}
				}
				l.Release()
			}
		})
	}
}

// Columns of every type that is served in place read as pyarrow wrote them, in any steps.
func TestMappedFilesReadAsWritten(t *testing.T) {
	h := newHouse(t, files(t))
	for _, step := range []int64{1 << 40, 20_011} {
		h.compare(t, "mapped.arrow", filepath.Join(files(t), "mapped.arrow.expect"), step)
	}
	obj, sh := h.describe(t, "mapped.arrow")
	var copied int
	err := h.each(obj, sh, 0, 20_011, func(l *frame.Lease) {
		copied += h.pool.Stats().Regions
		l.Release()
	})
	if err != nil || copied != 0 {
		t.Errorf("%d frames were copied: %v", copied, err)
	}
}
