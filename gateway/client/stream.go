package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/headrace/headrace/gateway/wire"
)

// Stream reads the batches of one ticket. It is used by one goroutine.
type Stream struct {
	cancel context.CancelFunc
	source *source
	reader *flight.Reader
}

// Stream fetches a ticket, or a request written by hand, and returns when its schema is there. The stream ends with
// ctx, and must be closed.
func (c *Client) Stream(ctx context.Context, ticket []byte) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{cancel: cancel}
	get, err := c.rpc.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err == nil {
		s.source = &source{get: get}
		if s.reader, err = flight.NewRecordReader(s.source); err != nil {
			err = s.source.blame(err)
		}
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("ended before its schema: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("stream: %w", err)
	}
	return s, nil
}

// Schema returns the schema that every batch has.
func (s *Stream) Schema() *arrow.Schema { return s.reader.Schema() }

// Next returns the next batch, which lives until the following call unless it is retained, and what the gateway says of
// it. At the end it returns io.EOF, which no failure does.
func (s *Stream) Next() (arrow.RecordBatch, wire.BatchMeta, error) {
	if !s.reader.Next() {
		err := s.source.blame(s.reader.Err())
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("stream: %w", err)
		}
		return nil, wire.BatchMeta{}, err
	}
	m, err := meta[wire.BatchMeta](s.reader.LatestAppMetadata())
	if err != nil {
		return nil, m, fmt.Errorf("stream: %w", err)
	}
	return s.reader.RecordBatch(), m, nil
}

// Close ends the stream, wherever it is, and frees the last batch.
func (s *Stream) Close() {
	s.cancel()
	s.reader.Release()
}

// source remembers how a stream ended: the reader above it words some failures anew and takes others for the end.
type source struct {
	get flight.FlightService_DoGetClient
	err error
}

// Recv implements flight.DataStreamReader.
func (s *source) Recv() (*flight.FlightData, error) {
	data, err := s.get.Recv()
	if err != nil {
		s.err = err
	}
	return data, err
}

// blame says why a reader stopped, err being its own account: io.EOF only when the gateway ended the stream with OK.
func (s *source) blame(err error) error {
	switch {
	case s.err != nil && !errors.Is(s.err, io.EOF):
		return s.err
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case s.err == nil:
		return fmt.Errorf("a message that is no record batch: %w", io.ErrUnexpectedEOF)
	}
	return io.EOF
}
