package parquetfile

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// storedSchemaKey is the footer's key for the schema that the writer had in
// memory: an IPC schema message in base64. It knows what Parquet's own schema
// does not: fixed-size lists, large types, time zones, durations, extensions.
const storedSchemaKey = "ARROW:schema"

var errFlatbuffer = errors.New("malformed schema message")

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
	if err := checkSchemaMessage(message); err != nil {
		return nil, err
	}
	return decodeSchema(message)
}

// decodeSchema decodes a message that checkSchemaMessage has passed.
func decodeSchema(message []byte) (s *arrow.Schema, err error) {
	err = guard(func() error {
		r, err := ipc.NewReader(bytes.NewReader(frameMessage(hideExtensions(message))))
		if err != nil {
			return err
		}
		defer r.Release()
		s = r.Schema()
		return nil
	})
	return s, err
}

// unframe returns the flatbuffer of an encapsulated message, old or new style.
func unframe(b []byte) ([]byte, error) {
	if len(b) >= 4 && binary.LittleEndian.Uint32(b) == 0xFFFFFFFF {
		b = b[4:]
	}
	if len(b) < 4 {
		return nil, errFlatbuffer
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, errFlatbuffer
	}
	return b[:n], nil
}

func frameMessage(message []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0xFFFFFFFF)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(message)))
	return append(b, message...)
}

// hiddenName stands for ipc.ExtensionTypeKeyName, byte for byte as long, while
// arrow-go decodes a schema. It would otherwise look extension types up among
// those that the process has registered, and rewrite or refuse their
// parameters; we serve storage and metadata as they are.
const hiddenName = "ARROW:extension:nam\x01"

func hideExtensions(message []byte) []byte {
	return bytes.ReplaceAll(message, []byte(ipc.ExtensionTypeKeyName), []byte(hiddenName))
}

// showExtensions undoes hideExtensions in a field's metadata.
func showExtensions(m arrow.Metadata) arrow.Metadata {
	if m.Len() == 0 {
		return m
	}
	show := func(texts []string) []string {
		out := make([]string, len(texts))
		for i, t := range texts {
			out[i] = strings.ReplaceAll(t, hiddenName, ipc.ExtensionTypeKeyName)
		}
		return out
	}
	return arrow.NewMetadata(show(m.Keys()), show(m.Values()))
}
