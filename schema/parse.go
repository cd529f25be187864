package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// ErrMessage means bytes that are no schema message, or one that is made to
// unfold to far more than it is.
var ErrMessage = errors.New("malformed schema message")

// ParseMessage is the inverse of Message for bytes that nobody vouches for.
// Extension types stay what they are without being known: their storage, and
// their names in the fields' metadata.
func ParseMessage(message []byte) (s *arrow.Schema, err error) {
	if err := checkMessage(message); err != nil {
		return nil, err
	}
	defer func() { // arrow-go has more than a few panics for foreign bytes
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("%w: %v", ErrMessage, p)
		}
	}()
	hidden := bytes.ReplaceAll(message, []byte(ipc.ExtensionTypeKeyName), []byte(hiddenName))
	framed := binary.LittleEndian.AppendUint32(nil, 0xFFFFFFFF)
	framed = binary.LittleEndian.AppendUint32(framed, uint32(len(hidden)))
	r, err := ipc.NewReader(bytes.NewReader(append(framed, hidden...)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	defer r.Release()
	md := show(r.Schema().Metadata())
	return arrow.NewSchema(showFields(r.Schema().Fields()), &md), nil
}

// hiddenName stands for ipc.ExtensionTypeKeyName, byte for byte as long, while
// arrow-go decodes a schema. It would otherwise look extension types up among
// those that the process has registered, and rewrite or refuse their
// parameters.
const hiddenName = "ARROW:extension:nam\x01"

func showFields(fields []arrow.Field) []arrow.Field {
	for i := range fields {
		f := &fields[i]
		f.Metadata = show(f.Metadata)
		f.Type = showType(f.Type)
	}
	return fields
}

func showType(t arrow.DataType) arrow.DataType {
	if d, ok := t.(*arrow.DictionaryType); ok {
		return &arrow.DictionaryType{IndexType: d.IndexType, ValueType: showType(d.ValueType), Ordered: d.Ordered}
	}
	return rebuild(t, showFields(children(t)))
}

// show puts the names of extensions back.
func show(m arrow.Metadata) arrow.Metadata {
	if m.Len() == 0 {
		return m
	}
	texts := func(hidden []string) []string {
		out := make([]string, len(hidden))
		for i, t := range hidden {
			out[i] = strings.ReplaceAll(t, hiddenName, ipc.ExtensionTypeKeyName)
		}
		return out
	}
	return arrow.NewMetadata(texts(m.Keys()), texts(m.Values()))
}
