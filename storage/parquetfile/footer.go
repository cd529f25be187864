package parquetfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/frame"
	"github.com/headrace/headrace/storage/snapshot"
)

const (
	// trailer is the length of a file's last bytes: the footer's length and a magic word.
	trailer = 8
	// firstRead is how much of a file's end is read at once, in the hope that
	// the footer is in it.
	firstRead = 16 << 10
	// maxFooter bounds what a length that nobody can check may make us read.
	maxFooter = 256 << 20
)

// footer is a parsed footer. It is shared by scanners and never changes.
type footer struct {
	sum    [sha256.Size]byte // of its bytes
	length int64             // in bytes
	meta   *metadata.FileMetaData
	schema *arrow.Schema // as served
	origin *arrow.Schema // as the writer had it in memory; nil if it does not say
}

// refused marks errors that are about what we cannot do, not about bad bytes.
type refused struct{ error }

func refusef(format string, args ...any) error { return refused{fmt.Errorf(format, args...)} }

func (r refused) Unwrap() error { return r.error }

// blame makes the error of a file that could not be read because of err.
func blame(name string, err error) error {
	var cannot refused
	if errors.As(err, &cannot) || errors.Is(err, frame.ErrUnsupported) {
		return fmt.Errorf("%w: parquet file %q: %w", snapshot.ErrUnsupported, name, err)
	}
	return fmt.Errorf("%w: parquet file %q: %w", snapshot.ErrCorrupt, name, err)
}

// guard runs f, which calls into arrow-go, and turns its panics into errors:
// on foreign bytes it has more than a few. What it decodes lies outside the Go
// heap, where a stray access is a fault and not a panic unless asked for.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if cause, ok := r.(error); ok {
				err = fmt.Errorf("decoder gave up: %w", cause)
			} else {
				err = fmt.Errorf("decoder gave up: %v", r)
			}
		}
	}()
	return f()
}

// readFooter returns the bytes of obj's footer, once its length and the magic
// word behind it have been checked.
func readFooter(ctx context.Context, obj *bucket.Object) ([]byte, error) {
	name, size := obj.Key(), obj.Size()
	if size < trailer+4 {
		return nil, blame(name, fmt.Errorf("%d bytes are too few for a Parquet file", size))
	}
	tail := make([]byte, min(size, firstRead))
	if err := obj.ReadAt(ctx, tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	length, err := footerLength(size, tail[len(tail)-trailer:])
	if err != nil {
		return nil, blame(name, err)
	}
	if have := int64(len(tail)) - trailer; length <= have {
		return tail[have-length : have], nil
	}
	b := make([]byte, length)
	return b, obj.ReadAt(ctx, b, size-trailer-length)
}

func footerLength(size int64, end []byte) (int64, error) {
	length := int64(binary.LittleEndian.Uint32(end))
	switch magic := string(end[4:]); {
	case magic == "PARE":
		return 0, refusef("the footer is encrypted")
	case magic != "PAR1":
		return 0, fmt.Errorf("it does not end in PAR1 but in %q: cut short, still being written, or not Parquet", magic)
	case length == 0 || length > size-trailer-4:
		return 0, fmt.Errorf("footer length %d, in a file of %d bytes", length, size)
	case length > maxFooter:
		return 0, refusef("footer of %d bytes, the limit is %d", length, int64(maxFooter))
	}
	return length, nil
}

// parseFooter parses and checks the footer b of a file of the given size.
func parseFooter(size int64, b []byte) (*footer, error) {
	f := &footer{sum: sha256.Sum256(b), length: int64(len(b))}
	b, err := checkFooter(b)
	if err != nil {
		return nil, fmt.Errorf("footer: %w", err)
	}
	err = guard(func() (err error) {
		f.meta, err = metadata.NewFileMetaData(b, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("footer: %w", err)
	}
	f.meta.SetSourceFileSize(size)
	if f.meta.IsSetEncryptionAlgorithm() {
		return nil, refusef("its columns are encrypted")
	}
	if err := checkFields(f.meta.Schema.Root()); err != nil {
		return nil, refusef("schema: %w", err)
	}
	if err := f.check(size); err != nil {
		return nil, err
	}
	// Our own reading of the stored schema replaces arrow-go's, so it must not find it.
	stored := storedSchema(f.meta.FileMetaData.KeyValueMetadata)
	f.meta.FileMetaData.KeyValueMetadata = withoutStoredSchema(f.meta.FileMetaData.KeyValueMetadata)
	if f.origin, err = originSchema(stored); err != nil {
		return nil, fmt.Errorf("footer: key %s: %w", storedSchemaKey, err)
	}
	manifest, err := manifestOf(f.meta.Schema)
	if err != nil {
		return nil, refusef("schema: %w", blameColumn(f.meta.Schema, err))
	}
	if f.schema, err = f.serve(manifest); err != nil {
		return nil, refusef("schema: %w", err)
	}
	return f, nil
}

// manifestOf returns arrow-go's plan of a file's fields.
func manifestOf(s *schema.Schema) (m *pqarrow.SchemaManifest, err error) {
	err = guard(func() (err error) {
		m, err = pqarrow.NewSchemaManifest(s, nil, nil)
		return err
	})
	return m, err
}

// blameColumn finds the column that err, of a plan, is about: arrow-go does not
// say. The schema is of no use afterwards.
func blameColumn(s *schema.Schema, err error) error {
	for i := range s.Root().NumFields() {
		field := s.Root().Field(i)
		alone, bad := schema.NewGroupNode(s.Root().Name(), s.Root().RepetitionType(), schema.FieldList{field}, -1)
		if bad == nil {
			_, bad = manifestOf(schema.NewSchema(alone))
		}
		if bad != nil {
			return fmt.Errorf("column %q: %w", field.Name(), bad)
		}
	}
	return err
}
