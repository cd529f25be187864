package schema

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"
	"pgregory.net/rapid"
)

// schemaMessage builds a schema message whose fields, depth levels deep, each
// have the same child twice.
func schemaMessage(depth int) []byte {
	b := flatbuffers.NewBuilder(1 << 10)
	name := b.CreateString("f")
	b.StartObject(0)
	kind := b.EndObject()
	var field flatbuffers.UOffsetT
	for range depth {
		var children flatbuffers.UOffsetT
		if field != 0 {
			b.StartVector(4, 2, 4)
			b.PrependUOffsetT(field)
			b.PrependUOffsetT(field)
			children = b.EndVector(2)
		}
		b.StartObject(7)
		b.PrependUOffsetTSlot(slotFieldName, name, 0)
		b.PrependByteSlot(slotFieldTypeType, 13, 0) // struct
		b.PrependUOffsetTSlot(slotFieldType, kind, 0)
		b.PrependUOffsetTSlot(slotFieldChildren, children, 0)
		field = b.EndObject()
	}
	b.StartVector(4, 1, 4)
	b.PrependUOffsetT(field)
	fields := b.EndVector(1)
	b.StartObject(4)
	b.PrependUOffsetTSlot(slotSchemaFields, fields, 0)
	schema := b.EndObject()
	b.StartObject(5)
	b.PrependInt16Slot(0, 4, 0) // version 5
	b.PrependByteSlot(slotMessageHeaderType, headerIsSchema, 0)
	b.PrependUOffsetTSlot(slotMessageHeader, schema, 0)
	b.Finish(b.EndObject())
	return b.FinishedBytes()
}

// TestForgedSchema unfolds to a thousand million fields from two kilobytes.
func TestForgedSchema(t *testing.T) {
	if s, err := ParseMessage(schemaMessage(3)); err != nil || s.NumFields() != 1 {
		t.Fatalf("the builder builds no schema: %v, %v", s, err)
	}
	for depth, good := range map[int]bool{1: true, 3: true, 30: false, 60: false} {
		if err := checkMessage(schemaMessage(depth)); (err == nil) != good {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
}

// What Message writes, ParseMessage reads, dictionaries and extension types included.
func TestParseMessageProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := drawFields(t, 2)
		dictionary := &arrow.DictionaryType{IndexType: i8, ValueType: text, Ordered: rapid.Bool().Draw(t, "ordered")}
		unknown := arrow.NewMetadata([]string{ipc.ExtensionTypeKeyName, ipc.ExtensionMetadataKeyName, "a"}, []string{"arrow.uuid", "not what it asks for", "b"})
		fields = append(fields,
			arrow.Field{Name: "dictionary", Type: arrow.ListOfField(nullable(field("item", dictionary)))},
			arrow.Field{Name: "extension", Type: arrow.ListOfField(arrow.Field{Name: "item", Type: text, Metadata: unknown}), Metadata: unknown})
		md := arrow.NewMetadata([]string{"pandas"}, []string{"{}"})
		s := arrow.NewSchema(fields, &md)
		got, err := ParseMessage(Message(s))
		if err != nil || !bytes.Equal(Message(got), Message(s)) {
			t.Fatalf("%v, %v became %v", err, s, got)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	f.Add(Message(of(field("x", i64), nullable(field("y", arrow.ListOf(text))))))
	f.Add(schemaMessage(2))
	f.Fuzz(func(t *testing.T, message []byte) {
		s, err := ParseMessage(message)
		if (s == nil) == (err == nil) {
			t.Errorf("%v, %v", s, err)
		}
	})
}
