// Package headgate embeds the contract of the service, openapi.yaml, and its guides. api
// serves the contract and is compared with it in tests, and its types are generated from it.
package headgate

import (
	"bytes"
	"embed"
	"strconv"
)

// Spec is openapi.yaml: the OpenAPI 3.1 document of the REST API.
//
//go:embed openapi.yaml
var Spec []byte

// Guides has the guides and the JSON Schemas of files, in the folder docs.
//
//go:embed docs/*.md docs/*.schema.json
var Guides embed.FS

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
