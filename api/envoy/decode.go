package envoy

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unmarshal decodes a message as proto.Unmarshal does, but it accepts strings that are not UTF-8. Envoy sends the bytes of its client, and
// proto.Unmarshal rejects the whole message if a header or a path has a byte that is not UTF-8. The call would then fail, Envoy would
// apply its failure mode, and the client would bypass its limits.
func unmarshal(b []byte, m proto.Message) error {
	err := proto.Unmarshal(b, m)
	if err == nil {
		return nil
	}
	proto.Reset(m)
	if !unmarshalRaw(b, m.ProtoReflect(), maxNesting) {
		return err
	}
	return nil
}

// maxNesting is the maximum depth of the messages that unmarshalRaw decodes. It leaves deeper ones empty. Headgate reads
// none of them: Envoy's metadata about a request is the only part that can be so deep.
const maxNesting = 50

// unmarshalRaw decodes the fields of b into m without a check of strings. It returns false if b is not the wire format
// of m.
func unmarshalRaw(b []byte, m protoreflect.Message, nesting int) bool {
	fields := m.Descriptor().Fields()
	return eachField(b, func(number protowire.Number, kind protowire.Type, field, content []byte) bool {
		f := fields.ByNumber(number)
		switch {
		case f == nil:
			return true
		case kind != protowire.BytesType || f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.MessageKind:
			return proto.UnmarshalOptions{Merge: true}.Unmarshal(field, m.Interface()) == nil
		case f.IsMap():
			return unmarshalEntry(content, f, m.Mutable(f).Map(), nesting)
		case f.IsList():
			list := m.Mutable(f).List()
			value, ok := rawValue(content, f, list.NewElement, nesting)
			list.Append(value)
			return ok
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(string(content)))
			return true
		default: // a repetition of the field is merged, as the wire format says
			return nesting == 0 || unmarshalRaw(content, m.Mutable(f).Message(), nesting-1)
		}
	})
}

// unmarshalEntry decodes an entry of the map field f, whose keys are strings in all messages of Envoy.
func unmarshalEntry(b []byte, f protoreflect.FieldDescriptor, entries protoreflect.Map, nesting int) bool {
	known := f.MapValue().Kind() == protoreflect.StringKind || f.MapValue().Kind() == protoreflect.MessageKind
	if f.MapKey().Kind() != protoreflect.StringKind || !known {
		return true // Headgate reads no such map
	}
	key, value := "", entries.NewValue()
	ok := eachField(b, func(number protowire.Number, kind protowire.Type, _, content []byte) (ok bool) {
		switch {
		case kind != protowire.BytesType:
			return true
		case number == f.MapKey().Number():
			key = string(content)
		case number == f.MapValue().Number():
			value, ok = rawValue(content, f.MapValue(), entries.NewValue, nesting)
			return ok
		}
		return true
	})
	entries.Set(protoreflect.ValueOfString(key).MapKey(), value)
	return ok
}

// rawValue decodes one value of a list or a map, which is a string or a message. empty returns an empty value.
func rawValue(b []byte, f protoreflect.FieldDescriptor, empty func() protoreflect.Value, nesting int) (protoreflect.Value, bool) {
	if f.Kind() == protoreflect.StringKind {
		return protoreflect.ValueOfString(string(b)), true
	}
	value := empty()
	return value, nesting == 0 || unmarshalRaw(b, value.Message(), nesting-1)
}

// eachField calls use for each field of an encoded message until use returns false. field is the whole field. content is
// the value of a field that has the type BytesType. It returns false if use does, or if b is not the wire format.
func eachField(b []byte, use func(number protowire.Number, kind protowire.Type, field, content []byte) bool) bool {
	for len(b) > 0 {
		number, kind, head := protowire.ConsumeTag(b)
		if head < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(number, kind, b[head:])
		if size < 0 {
			return false
		}
		var content []byte
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(b[head:])
		}
		if !use(number, kind, b[:head+size], content) {
			return false
		}
		b = b[head+size:]
	}
	return true
}

// codec is the codec of the calls that grpc-go serves. It decodes messages with unmarshal.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(encodingproto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, to any) error {
	m, ok := to.(proto.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, to)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	if err := unmarshal(buffer.ReadOnlyData(), m); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	return nil
}
