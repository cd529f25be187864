package codec

import (
	"bytes"
	"encoding/json"
	"sort"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/storage/frame"
)

// windows are the rows that each file is asked for: all, none, and runs that begin on no byte of a bitmap.
func windows(rows int64) [][2]int64 {
	return [][2]int64{{0, rows}, {0, 0}, {rows, 0}, {0, 9}, {1, 1}, {3, rows - 5}, {8, 64}, {1001, 777}, {rows - 1, 1}}
}

// tables serves rows of frames made of the given batches.
func tables(t testing.TB, s *store, batches map[string]arrow.RecordBatch) *server {
	leases := map[string]*frame.Lease{}
	for name, rec := range batches {
		leases[name] = s.frame(t, rec)
	}
	t.Cleanup(func() {
		for _, l := range leases {
			l.Release()
		}
	})
	return serve(t, func(b []byte, stream grpc.ServerStream) error {
		var want ticket
		if err := json.Unmarshal(b, &want); err != nil {
			return err
		}
		lease := leases[want.File].Share()
		rec := lease.Batch().NewSlice(want.From, want.From+want.N)
		defer rec.Release()
		if err := send(stream, SchemaMessage(schemaBytes(rec.Schema()), nil)); err != nil {
			lease.Release()
			return err
		}
		body, err := NewEncoder(want.Compression, s.pool, s.grant).Encode(rec)
		if err != nil {
			lease.Release()
			return err
		}
		return send(stream, body.Message(stream.Context(), []byte("meta"), lease))
	})
}

// Every kind of column, whole and in slices, raw and compressed, arrives at the stock pyarrow client with the values,
// schema and row counts it was stored with, valid in full, each buffer on a multiple of 16 bytes.
func TestRoundTripToPyarrow(t *testing.T) {
	dir, batches := made(t)
	s := newStore(t)
	srv := tables(t, s, batches)
	var jobs []job
	for _, name := range sorted(batches) {
		for i, w := range windows(batches[name].NumRows()) {
			for c := None; c <= Zstd; c++ {
				if c != None && i != 0 && i != 5 {
					continue
				}
				jobs = append(jobs, job{
					Ticket: &ticket{name, w[0], w[1], c}, File: name, From: w[0], N: w[1],
					URI: "grpc://" + srv.address, Aligned: c == None && aligned(t, s, batches[name].NewSlice(w[0], w[0]+w[1])),
				})
			}
		}
	}
	writeJobs(t, dir, jobs)
	checkJobs(t, dir, len(jobs))
}

// aligned tells whether a stock client joins a message of rec in memory of its own. One that comes in a single frame
// is read in place, wherever the frame begins.
func aligned(t testing.TB, s *store, rec arrow.RecordBatch) bool {
	t.Helper()
	defer rec.Release()
	body, err := NewEncoder(None, s.pool, s.grant).Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Release()
	return body.size > 16<<10
}

func checkJobs(t testing.TB, dir string, jobs int) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(runClient(t, "check", dir))), "\n")
	last := strings.Fields(lines[len(lines)-1])
	for _, fault := range lines[:len(lines)-1] {
		t.Error(fault)
	}
	if len(last) != 3 || last[0] != "done" {
		t.Fatalf("the client ended with %q", lines[len(lines)-1])
	}
	if last[1] != jsonOf(jobs) {
		t.Errorf("%s of %d jobs done", last[1], jobs)
	}
	t.Logf("%s jobs, %s rows", last[1], last[2])
}

func jsonOf(v any) string { b, _ := json.Marshal(v); return string(b) }

func sorted[T any](m map[string]T) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// The same through arrow-go's Flight client, which reads views, unions and lists by code of its own.
func TestRoundTripToArrowGo(t *testing.T) {
	_, batches := made(t)
	s := newStore(t)
	srv := tables(t, s, batches)
	_, client := dial(t, srv.address)
	for _, name := range sorted(batches) {
		for _, w := range windows(batches[name].NumRows()) {
			want := batches[name].NewSlice(w[0], w[0]+w[1])
			stream, err := client.DoGet(t.Context(), &flight.Ticket{Ticket: []byte(jsonOf(ticket{File: name, From: w[0], N: w[1]}))})
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			err = receive(stream, func(got arrow.RecordBatch, meta []byte) error {
				count++
				if !equal(want, got) {
					t.Errorf("%s rows %v differ", name, w)
				}
				if string(meta) != "meta" {
					t.Errorf("metadata %q", meta)
				}
				return nil
			})
			if err != nil || count != 1 {
				t.Errorf("%s rows %v: %d batches, %v", name, w, count, err)
			}
			want.Release()
		}
	}
}

// B22: slices of lists at odd rows joined again are the table.
func TestB22_ListsAtOddRows(t *testing.T) {
	_, batches := made(t)
	for _, name := range []string{"list_.arrows", "large_list.arrows", "list__text.arrows", "nested_list.arrows", "map.arrows", "list_string_view.arrows"} {
		s := newStore(t)
		lease := s.frame(t, batches[name])
		rec := lease.Batch()
		cuts := []int64{0, 1, 3, 7, 9, 1001, rec.NumRows()}
		var parts []arrow.Array
		for i := 1; i < len(cuts); i++ {
			piece := rec.NewSlice(cuts[i-1], cuts[i])
			body, err := NewEncoder(None, s.pool, s.grant).Encode(piece)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, decode(t, body.stream(rec.Schema())).Column(0))
			body.Release()
		}
		joined, err := array.Concatenate(parts, heap)
		if err != nil {
			t.Fatal(err)
		}
		if !array.Equal(joined, batches[name].Column(0)) {
			t.Errorf("%s: the slices joined are not the table", name)
		}
		lease.Release()
	}
}

// B24: slices of unions and list-views, which arrow-go's own writer cannot write, arrive; so do arrays that refer to
// their children out of order.
func TestB24_SlicedUnionsAndListViews(t *testing.T) {
	_, batches := made(t)
	for _, name := range []string{
		"dense_union", "dense_union_gaps", "sparse_union", "list_view", "large_list_view", "list_view_backwards",
		"list_of_union", "struct_of_list_view", "list_view_text", "run_ends",
	} {
		rec := batches[name+".arrows"]
		for _, w := range windows(rec.NumRows()) {
			s := newStore(t)
			piece := rec.NewSlice(w[0], w[0]+w[1]) // of the array as read, not of a frame
			body, err := NewEncoder(None, s.pool, s.grant).Encode(piece)
			if err != nil {
				t.Fatalf("%s rows %v: %v", name, w, err)
			}
			if got := decode(t, body.stream(rec.Schema())); !equal(piece, got) {
				t.Errorf("%s rows %v differ", name, w)
			}
			body.Release()
		}
	}
}

// B25: no byte of a row outside the slice is sent, whatever the type, and a small slice makes a small message.
func TestB25_NothingOutsideTheSlice(t *testing.T) {
	_, batches := made(t)
	s := newStore(t)
	for _, name := range sorted(batches) {
		rec := batches[name]
		if rec.NumRows() != 3000 {
			continue
		}
		const from, to = 1403, 1413
		piece := rec.NewSlice(from, to)
		small := rec.NewSlice(from, from)
		for _, c := range []Compression{None, LZ4} {
			enc := NewEncoder(c, s.pool, s.grant)
			body, err := enc.Encode(piece)
			if err != nil {
				t.Fatal(err)
			}
			empty, err := enc.Encode(small)
			if err != nil {
				t.Fatal(err)
			}
			if limit := empty.size + 4096*int(rec.NumCols()); body.size > limit {
				t.Errorf("%s: 10 rows make a body of %d bytes", name, body.size)
			}
			body.Release()
			empty.Release()
		}
	}
	secrets(t, s)
}

// secrets sends rows 8 to 11 of columns whose other rows all carry a mark, and looks for the mark on the wire.
func secrets(t *testing.T, s *store) {
	for name, rec := range markedColumns(t) {
		piece := rec.NewSlice(8, 12)
		body, err := NewEncoder(None, s.pool, s.grant).Encode(piece)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wire := body.stream(rec.Schema())
		if bytes.Contains(wire, []byte(mark)) {
			t.Errorf("%s: a row outside the slice is on the wire", name)
		}
		if !bytes.Contains(wire, []byte("wanted")) {
			t.Errorf("%s: the rows of the slice are not on the wire", name)
		}
		if !equal(piece, decode(t, wire)) {
			t.Errorf("%s: rows differ", name)
		}
		body.Release()
	}
}

// Schema messages carry the flatbuffer as given, a descriptor before it, and no body.
func TestSchemaMessage(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)
	srv := serve(t, func(_ []byte, stream grpc.ServerStream) error {
		descriptor := []byte{8, 1, 26, 1, 'x'} // PATH ["x"]
		return send(stream, SchemaMessage(schemaBytes(schema), descriptor))
	})
	_, client := dial(t, srv.address)
	stream, err := client.DoGet(t.Context(), &flight.Ticket{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data.DataHeader, schemaBytes(schema)) || data.DataBody != nil || data.FlightDescriptor.GetPath()[0] != "x" {
		t.Errorf("got %v", data)
	}
}

// Bodies begin at a multiple of 16 bytes for headers of any length, with application metadata or without.
func TestBodyAlignment(t *testing.T) {
	for header := range 300 {
		for _, meta := range []int{0, 1, 127, 128, 400} {
			for _, body := range []int{0, 64, 1 << 14, 1 << 22} {
				head := batchHead(bytes.Repeat([]byte{7}, header), make([]byte, meta), body)
				if len(head)%bodyAlign != 0 {
					t.Fatalf("header %d, metadata %d: the body begins at %d", header, meta, len(head))
				}
				if limit := (&Body{header: make([]byte, header), size: body}).Size(); len(head)+body > limit {
					t.Fatalf("header %d, metadata %d: %d bytes, announced %d", header, meta, len(head)+body, limit)
				}
			}
		}
	}
}
