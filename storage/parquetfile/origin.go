package parquetfile

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
)

// storedSchemaKey is the footer's key for the schema that the writer had in
// memory: an IPC schema message in base64. It knows what Parquet's own schema
// does not: fixed-size lists, large types, time zones, durations, extensions.
const storedSchemaKey = "ARROW:schema"

// keyValue is the footer's key-value pair, whose type has no name out here.
type keyValue interface {
	comparable
	GetKey() string
	GetValue() string
}

func storedSchema[P keyValue](pairs []P) string {
	var none P
	for _, p := range pairs {
		if p != none && p.GetKey() == storedSchemaKey {
			return p.GetValue()
		}
	}
	return ""
}

func withoutStoredSchema[P keyValue](pairs []P) []P {
	var none P
	return slices.DeleteFunc(pairs, func(p P) bool { return p == none || p.GetKey() == storedSchemaKey })
}

// originSchema decodes the stored schema; nil if there is none.
func originSchema(stored string) (*arrow.Schema, error) {
	if stored == "" {
		return nil, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(stored, "="))
	if err != nil {
		return nil, err
	}
	message, err := unframe(b)
	if err != nil {
		return nil, err
	}
	return schema.ParseMessage(message)
}

// unframe returns the flatbuffer of an encapsulated message, old or new style.
func unframe(b []byte) ([]byte, error) {
	if len(b) >= 4 && binary.LittleEndian.Uint32(b) == 0xFFFFFFFF {
		b = b[4:]
	}
	if len(b) < 4 {
		return nil, schema.ErrMessage
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, schema.ErrMessage
	}
	return b[:n], nil
}
