// Package headgate holds the contract of the service: openapi.yaml, which api
// serves and is held to, and from which its types are generated.
package headgate

import (
	"bytes"
	_ "embed"
	"strconv"
)

// Spec is openapi.yaml: the OpenAPI 3.1 document of the REST API.
//
//go:embed openapi.yaml
var Spec []byte

// SpecOf returns Spec with the version of the program as info.version. If version is "", SpecOf
// returns Spec.
func SpecOf(version string) []byte {
	const member = "\n  version: "
	at := bytes.Index(Spec, []byte(member)) + len(member)
	end := at + bytes.IndexByte(Spec[at:], '\n')
	if version == "" {
		return Spec
	}
	return bytes.Join([][]byte{Spec[:at], Spec[end:]}, strconv.AppendQuote(nil, version))
}
