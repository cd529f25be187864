package parquetfile

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/headrace/headrace/storage/snapshot"
)

// maxFileBytes bounds what one file may claim to decode to. Run-length codes
// let a few hundred honest bytes stand for any number of rows; beyond this
// their blocks could not even be listed.
const maxFileBytes = 1 << 44

// maxValue bounds the width of values, in bytes: no page could hold a wider one.
const maxValue = 1 << 30

// chunk is what the footer says of one column of one row group.
type chunk struct {
	start, size int64 // where its pages are in the file
	end         int64 // where they end at the latest
	values      int64 // nulls and empty lists included
	raw         int64 // page bytes before compression
	unencoded   int64 // bytes of its byte arrays, 0 if not said
	codec       compress.Compression
	dictPages   int   // 1 if there is a dictionary
	dictSize    int64 // of its page, as far as the footer tells
	index       int64 // where its offset index is in the file
	indexSize   int64 // 0: it has none
}

// check looks at every number of the footer.
func (f *footer) check(size int64) error {
	var rows, bytes int64
	for rg := range f.meta.RowGroups {
		n, b, err := f.checkRowGroup(rg, size)
		if err != nil {
			return err
		}
		if rows += n; rows < 0 {
			return fmt.Errorf("row group %d: num_rows %d: more rows than can be counted", rg, n)
		}
		if bytes += b; bytes > maxFileBytes {
			return refusef("it claims to decode to more than %d bytes", int64(maxFileBytes))
		}
	}
	// Some writers leave this one 0; nothing hangs on it.
	if total := f.meta.NumRows; total != rows && total != 0 {
		return fmt.Errorf("num_rows %d, but the row groups have %d", total, rows)
	}
	return nil
}

// checkFields refuses lists of lists in the form that was given up in 2014:
// arrow-go takes them for something else than everybody else does.
func checkFields(group *schema.GroupNode) error {
	for i := range group.NumFields() {
		kid, ok := group.Field(i).(*schema.GroupNode)
		if !ok {
			continue
		}
		if isList(group) && isList(kid) {
			return fmt.Errorf("%q is a list of lists in an old form", group.Path())
		}
		if err := checkFields(kid); err != nil {
			return err
		}
	}
	return nil
}

func isList(g *schema.GroupNode) bool { return g.LogicalType().Equals(schema.ListLogicalType{}) }

func (f *footer) checkRowGroup(rg int, size int64) (rows, bytes int64, err error) {
	group := f.meta.RowGroups[rg]
	if group == nil {
		return 0, 0, fmt.Errorf("row group %d is missing", rg)
	}
	rows = group.NumRows
	if rows < 0 {
		return 0, 0, fmt.Errorf("row group %d: num_rows %d", rg, rows)
	}
	if have, want := len(group.Columns), f.meta.Schema.NumColumns(); have != want {
		return 0, 0, fmt.Errorf("row group %d: columns: %d of %d", rg, have, want)
	}
	for col := range group.Columns {
		if err := f.checkChunk(rg, col, size); err != nil {
			return 0, 0, err
		}
		if bytes += f.chunkBytes(rg, col); bytes > maxFileBytes {
			return 0, 0, refusef("row group %d claims to decode to more than %d bytes", rg, int64(maxFileBytes))
		}
	}
	return rows, bytes, nil
}

// checkChunk looks at the numbers of one column chunk.
func (f *footer) checkChunk(rg, col int, size int64) error {
	leaf, c := f.meta.Schema.Column(col), f.meta.RowGroups[rg].Columns[col]
	where := fmt.Sprintf("row group %d, column %q", rg, leaf.Path())
	switch {
	case c == nil:
		return fmt.Errorf("%s is missing", where)
	case c.CryptoMetadata != nil:
		return refusef("%s is encrypted", where)
	case c.FilePath != nil && *c.FilePath != "":
		return refusef("%s is in another file, file_path %q", where, *c.FilePath)
	case c.MetaData == nil:
		return fmt.Errorf("%s: meta_data is missing", where)
	case parquet.Type(c.MetaData.Type) != leaf.PhysicalType():
		return fmt.Errorf("%s: type %s, the schema says %s", where, c.MetaData.Type, leaf.PhysicalType())
	}
	k, rows := f.chunk(rg, col), f.meta.RowGroups[rg].NumRows
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"data_page_offset", c.MetaData.DataPageOffset},
		{"dictionary_page_offset", c.MetaData.GetDictionaryPageOffset()},
		{"total_compressed_size", k.size},
		{"total_uncompressed_size", k.raw},
		{"num_values", k.values},
		{"unencoded_byte_array_data_bytes", k.unencoded},
	} {
		if field.value < 0 {
			return fmt.Errorf("%s: %s %d", where, field.name, field.value)
		}
	}
	end := size - trailer - f.length
	// A page has a header of 8 bytes or more, and at most 2³¹ values and bytes.
	room := k.size/8 + 1
	switch nested := leaf.MaxRepetitionLevel() > 0; {
	case leaf.TypeLength() > maxValue:
		return refusef("%s: values of %d bytes, the most are %d", where, leaf.TypeLength(), maxValue)
	case k.size > end || k.start > end-k.size:
		return fmt.Errorf("%s: pages at %d, %d bytes long, in a file with %d bytes of data", where, k.start, k.size, end)
	case !nested && k.values != rows:
		return fmt.Errorf("%s: num_values %d, num_rows %d", where, k.values, rows)
	case nested && (k.values < rows || rows == 0 && k.values > 0):
		return fmt.Errorf("%s: num_values %d, num_rows %d", where, k.values, rows)
	case k.values/math.MaxInt32 > room:
		return fmt.Errorf("%s: num_values %d in %d bytes", where, k.values, k.size)
	case k.raw/math.MaxInt32 > room:
		return fmt.Errorf("%s: total_uncompressed_size %d from %d bytes", where, k.raw, k.size)
	}
	return nil
}

// chunk reads the footer's numbers on column col of row group rg.
func (f *footer) chunk(rg, col int) chunk {
	m := f.meta.RowGroups[rg].Columns[col].MetaData
	k := chunk{
		start: m.DataPageOffset, size: m.TotalCompressedSize, values: m.NumValues, raw: m.TotalUncompressedSize,
		codec: compress.Compression(m.Codec),
	}
	if d := m.GetDictionaryPageOffset(); d > 0 && d < k.start {
		k.start, k.dictPages, k.dictSize = d, 1, k.start-d
	}
	c := f.meta.RowGroups[rg].Columns[col]
	if c.OffsetIndexOffset != nil && c.OffsetIndexLength != nil {
		k.index, k.indexSize = *c.OffsetIndexOffset, int64(*c.OffsetIndexLength)
	}
	k.end = k.start + k.size
	if f.meta.WriterVersion().LessThan(metadata.Parquet816FixedVersion) {
		// These forgot to count the header of the dictionary page. arrow-go
		// makes up for it too.
		k.end += min(100, max(0, f.meta.GetSourceFileSize()-k.end))
	}
	if s := m.SizeStatistics; s != nil && s.UnencodedByteArrayDataBytes != nil {
		k.unencoded = *s.UnencodedByteArrayDataBytes
	}
	return k
}

// segments returns a segment for every row group. Its Bytes are the sum of
// chunkBytes over all columns of the file.
func (f *footer) segments() []snapshot.Segment {
	out := make([]snapshot.Segment, len(f.meta.RowGroups))
	for rg, group := range f.meta.RowGroups {
		out[rg].Rows = group.NumRows
		for col := range group.Columns {
			out[rg].Bytes += f.chunkBytes(rg, col)
		}
	}
	return out
}

// chunkBytes says how large a column chunk is: the largest of
//
//   - total_uncompressed_size: what its pages hold before compression,
//   - num_values × the width of its physical type: 4 bytes for INT32 and
//     FLOAT, 8 for INT64 and DOUBLE, 12 for INT96, type_length for
//     FIXED_LEN_BYTE_ARRAY, 0 for BOOLEAN and BYTE_ARRAY,
//   - unencoded_byte_array_data_bytes, where the column has size statistics.
//
// The last two see through dictionaries. These numbers decide where blocks
// begin, and with that the order of rows: they can never change. A product or
// sum beyond 2⁵⁰ stops there; such a file is refused anyway.
func (f *footer) chunkBytes(rg, col int) int64 {
	const most = 1 << 50
	k := f.chunk(rg, col)
	fixed := int64(most)
	if w := fixedWidth(f.meta.Schema.Column(col).PhysicalType(), f.meta.Schema.Column(col).TypeLength()); w == 0 || k.values < most/w {
		fixed = k.values * w
	}
	return min(max(k.raw, fixed, k.unencoded), most)
}

// dictBytes says how large a chunk's dictionary is as stored, with its header; 0 if the footer does not tell of one.
func (f *footer) dictBytes(rg, col int) int64 {
	k := f.chunk(rg, col)
	return min(k.dictSize, k.size)
}

// fixedWidth returns the bytes that a value of the type has, 0 if that varies
// or is less than one.
func fixedWidth(t parquet.Type, length int) int64 {
	switch t {
	case parquet.Types.Int32, parquet.Types.Float:
		return 4
	case parquet.Types.Int64, parquet.Types.Double:
		return 8
	case parquet.Types.Int96:
		return 12
	case parquet.Types.FixedLenByteArray:
		return int64(max(length, 0))
	}
	return 0
}
