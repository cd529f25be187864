// Package arrowfile reads Arrow IPC files and streams: it describes a shard and
// decodes blocks of a segment into frames.
//
// A segment is one record batch. Metadata of both forms is parsed here, with
// every offset checked, before anything else sees it; buffers of uncompressed
// batches are read straight into the frame, only those of the wanted columns and
// rows; compressed ones are decompressed once per segment. Dictionary-encoded
// columns become plain values.
package arrowfile
