package envoy

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// errMetadata is the error for a text that is not the JSON of a decision.
var errMetadata = errors.New("the decision is not valid JSON")

// Numbers of the fields of google.protobuf.Struct, of an entry of its map, of Value, and of ListValue.
const (
	structFields = 1
	entryKey     = 1
	entryValue   = 2
	valueNull    = 1
	valueNumber  = 2
	valueString  = 3
	valueBool    = 4
	valueStruct  = 5
	valueList    = 6
	listValues   = 1
)

// appendStruct appends a JSON object to b in the wire format of google.protobuf.Struct. The JSON must have no spaces
// between its tokens, like the output of api.AppendBody. appendStruct does not use structpb, which makes a map and
// several allocations for each value: decoding and encoding the metadata of a check with it took ten times as long as
// the decision.
func appendStruct(b []byte, object string) ([]byte, error) {
	b, rest, err := appendObject(b, object)
	if err == nil && rest != "" {
		err = errMetadata
	}
	return b, err
}

// appendObject appends the JSON object at the beginning of text, and returns the rest of text.
func appendObject(b []byte, text string) ([]byte, string, error) {
	return appendElements(b, text, '{', '}', structFields, func(b []byte, text string) ([]byte, string, error) {
		b, text, err := appendText(b, text, entryKey)
		if err != nil || text == "" || text[0] != ':' {
			return b, text, errors.Join(err, errMetadata)
		}
		return appendMessage(b, text[1:], entryValue, appendValue)
	})
}

// appendElements reads a JSON array or object at the beginning of text, which begins with the byte first and ends with
// the byte last. It appends each element as a message in the protobuf field with this number.
func appendElements(b []byte, text string, first, last byte, number protowire.Number, element appender) ([]byte, string, error) {
	if len(text) < 2 || text[0] != first {
		return b, text, errMetadata
	}
	if text[1] == last {
		return b, text[2:], nil
	}
	for {
		var err error
		if b, text, err = appendMessage(b, text[1:], number, element); err != nil {
			return b, text, err
		}
		switch {
		case text == "":
			return b, text, errMetadata
		case text[0] == last:
			return b, text[1:], nil
		case text[0] != ',':
			return b, text, errMetadata
		}
	}
}

// An appender appends the JSON value at the beginning of text in the wire format, and returns the rest of text.
type appender func(b []byte, text string) ([]byte, string, error)

// appendMessage appends a message in the protobuf field with this number. content appends the bytes
// of the message.
func appendMessage(b []byte, text string, number protowire.Number, content appender) ([]byte, string, error) {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	begin := len(b)
	b, text, err := content(b, text)
	if err != nil {
		return b, text, err
	}
	size := len(b) - begin
	for range protowire.SizeVarint(uint64(size)) { // make room for the size, which precedes the content
		b = append(b, 0)
	}
	copy(b[len(b)-size:], b[begin:begin+size])
	protowire.AppendVarint(b[:begin], uint64(size))
	return b, text, nil
}

// appendValue appends a value as a google.protobuf.Value.
func appendValue(b []byte, text string) ([]byte, string, error) {
	if text == "" {
		return b, text, errMetadata
	}
	switch text[0] {
	case '{':
		return appendMessage(b, text, valueStruct, appendObject)
	case '[':
		return appendMessage(b, text, valueList, func(b []byte, text string) ([]byte, string, error) {
			return appendElements(b, text, '[', ']', listValues, appendValue)
		})
	case '"':
		return appendText(b, text, valueString)
	}
	end := 0
	for end < len(text) && text[end] != ',' && text[end] != '}' && text[end] != ']' {
		end++
	}
	switch word := text[:end]; word {
	case "null":
		b = protowire.AppendVarint(protowire.AppendTag(b, valueNull, protowire.VarintType), 0)
	case "true", "false":
		b = protowire.AppendVarint(protowire.AppendTag(b, valueBool, protowire.VarintType), protowire.EncodeBool(word == "true"))
	default:
		number, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return b, text, errMetadata
		}
		b = protowire.AppendFixed64(protowire.AppendTag(b, valueNumber, protowire.Fixed64Type), math.Float64bits(number))
	}
	return b, text[end:], nil
}

// appendText appends the JSON string at the beginning of text as the protobuf field with this
// number.
func appendText(b []byte, text string, number protowire.Number) ([]byte, string, error) {
	if text == "" || text[0] != '"' {
		return b, text, errMetadata
	}
	escaped := false
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			value := text[1:i]
			if escaped {
				if err := json.Unmarshal([]byte(text[:i+1]), &value); err != nil {
					return b, text, errMetadata
				}
			}
			if !utf8.ValidString(value) {
				return b, text, errMetadata
			}
			return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value), text[i+1:], nil
		}
	}
	return b, text, errMetadata
}

// appendBytes appends a field that holds bytes, a string, or an encoded message.
func appendBytes[T ~string | ~[]byte](b []byte, number protowire.Number, content T) []byte {
	b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(len(content)))
	return append(b, content...)
}

// appendMember appends a member of a google.protobuf.Struct. value is an encoded google.protobuf.Value.
func appendMember(b []byte, name string, value []byte) []byte {
	b = protowire.AppendTag(b, structFields, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(2+protowire.SizeBytes(len(name))+protowire.SizeBytes(len(value))))
	return appendBytes(appendBytes(b, entryKey, name), entryValue, value)
}
