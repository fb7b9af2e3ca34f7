// Package headgate holds the contract of the service: openapi.yaml, which api
// serves and is held to, and from which its types are generated.
package headgate

import _ "embed"

// Spec is openapi.yaml: the OpenAPI 3.1 document of the REST API.
//
//go:embed openapi.yaml
var Spec []byte
