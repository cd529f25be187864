package main

import (
	"context"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"golang.org/x/sys/unix"
)

// stockCommand makes this program arrow-go's stock Flight server over one mapped Arrow file.
const stockCommand = "stock-server"

type stockServer struct {
	flight.BaseFlightServer
	data []byte
}

// DoGet sends the whole file with arrow-go's own record writer.
func (s *stockServer) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	r, err := ipc.NewMappedFileReader(s.data)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	w := flight.NewRecordWriter(stream, ipc.WithSchema(r.Schema()))
	defer func() { _ = w.Close() }()
	for i := range r.NumRecords() {
		rec, err := r.RecordBatchAt(i)
		if err != nil {
			return err
		}
		err = w.Write(rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func serveStock(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", path, err)
	}
	s := flight.NewServerWithMiddleware(nil)
	if err := s.Init("127.0.0.1:0"); err != nil {
		return err
	}
	s.RegisterFlightService(&stockServer{data: data})
	fmt.Printf("listening grpc://%s\n", s.Addr())
	defer context.AfterFunc(ctx, s.Shutdown)()
	return s.Serve()
}
