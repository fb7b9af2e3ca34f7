// Package strictjson reads JSON that has only one possible meaning.
//
// encoding/json is more lenient than a quota service can be. It accepts "Cost" for "cost", uses the
// last of two fields with the same name, accepts null for an absent field, and repairs invalid
// UTF-8. With each of these, two programs that read the same body could see different requests.
//
// This package accepts exactly one value in valid UTF-8. NUL characters, lone surrogates, duplicate
// names, null, too deep nesting, and text after the value are errors. Every error is a
// *problem.Problem of kind Malformed with the RFC 6901 pointer of the place.
//
// Check only checks a text. A Decoder reads a text step by step and checks the same rules; callers
// write their decoding functions with it. The package must not depend on the types of its callers.
// The time to read a text is linear in its length.
package strictjson

// MaxDepth is the maximum number of nested arrays and objects in a request body.
const MaxDepth = 8

// Check returns nil if data is one strict JSON value whose arrays and objects are nested at most maxDepth levels
// deep. Otherwise the error is a *problem.Problem of kind Malformed.
func Check(data []byte, maxDepth int) error {
	var d Decoder
	d.Reset(string(data), maxDepth)
	d.Skip()
	return d.End()
}
