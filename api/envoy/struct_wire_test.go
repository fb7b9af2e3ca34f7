package envoy

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"
)

// appendStruct has the values that structpb reads from the same JSON.
func TestAppendStruct(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int) *rapid.Generator[any]
		value = func(depth int) *rapid.Generator[any] {
			kinds := []*rapid.Generator[any]{
				rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Float64().AsAny(), rapid.Int32().AsAny(), rapid.String().AsAny(),
				rapid.StringOfN(rapid.RuneFrom([]rune("\"\\/<\n\u2028é")), 0, 200, -1).AsAny(),
			}
			if depth > 0 {
				kinds = append(kinds, rapid.SliceOfN(value(depth-1), 0, 4).AsAny(), rapid.MapOfN(rapid.String(), value(depth-1), 0, 4).AsAny())
			}
			return rapid.OneOf(kinds...)
		}
		text, err := json.Marshal(rapid.MapOfN(rapid.String(), value(3), 0, 8).Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		var want, got structpb.Struct
		if err := want.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		wire, err := appendStruct(nil, string(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := proto.Unmarshal(wire, &got); err != nil || !proto.Equal(&want, &got) {
			t.Fatalf("%s: %v, %v, want %v", text, err, &got, &want)
		}
	})
}

// A text that is no JSON object without spaces is an error.
func TestAppendStructRejects(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `}`, `[]`, `{}}`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{"a":[1}`, `{"a":"\x"}`, `{"a":"b`, `{"a":one}`, `{a:1}`, `{"a":1;"b":2}`} {
		if b, err := appendStruct(nil, text); err == nil {
			t.Errorf("%s: %x", text, b)
		}
	}
}
