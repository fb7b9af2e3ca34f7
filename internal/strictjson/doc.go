// Package strictjson reads JSON that must mean one thing only.
//
// encoding/json is lenient where a quota service cannot be: it takes "Cost" for
// "cost", the last of two fields of one name, null for "not given", and repairs
// broken UTF-8. Each of these lets two readers of one body see different
// requests. This package takes exactly one value, in valid UTF-8, without NUL,
// lone surrogates, duplicate names or null, no deeper than asked, with nothing
// after it; everything else is a *problem.Problem of kind Malformed with the
// RFC 6901 pointer of the place.
//
// Text comes in at Check (is it strict at all?) or at a Decoder (a pull scanner
// for decoders written by hand, which holds every rule of Check as it goes). The
// package refuses to know what is read. It is linear in the text.
package strictjson

// MaxDepth is how deep bodies may nest: arrays and objects inside one another.
const MaxDepth = 8

// Check reports whether data is one strict JSON value whose arrays and objects
// nest at most maxDepth deep. Its error is a *problem.Problem of kind Malformed.
func Check(data []byte, maxDepth int) error {
	var d Decoder
	d.Reset(string(data), maxDepth)
	d.Skip()
	return d.End()
}
