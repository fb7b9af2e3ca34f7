package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// maxJWT is the maximum size of a JWT in bytes.
const maxJWT = 8 << 10

// errJWT is the error for a JWT that cannot be read or, with Config.VerifyJWT, is not valid.
var errJWT = problem.WithCode(problem.Unauthenticated, "invalid_jwt", "the JWT of this request is not valid")

// claims holds the claims of the JWT in a forwarded request. The option jwt says where the JWT is:
// header:Header or cookie:Cookie. It is read once, when the first attribute needs a claim.
type claims struct {
	api    *API
	r      *http.Request
	from   string
	read   bool
	values map[string]any // nil if the request has no JWT
}

// text returns the claim with this name as text. It returns "" if the JWT does not have the claim, and an error if the
// claim is an object or a list.
func (c *claims) text(name string) (string, error) {
	if !c.read {
		if err := c.load(); err != nil {
			return "", err
		}
		c.read = true
	}
	switch value := c.values[name].(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case json.Number:
		return value.String(), nil
	case bool:
		return strconv.FormatBool(value), nil
	}
	return "", malformedAt("attributes", "the claim "+name+" is an object or a list: use a claim that is a text, a number or a boolean")
}

// load reads the JWT. If Config.VerifyJWT is nil, it uses the claims without verifying the
// signature.
func (c *claims) load() error {
	kind, name, _ := strings.Cut(c.from, ":")
	if name == "" || kind != "header" && kind != "cookie" {
		return malformedAt("jwt", "must be header:Header or cookie:Cookie, because attributes has claims")
	}
	token, err := valueOf(c.r, kind, name)
	token = withoutScheme(token)
	switch {
	case err != nil || token == "":
		return err
	case len(token) > maxJWT:
		return errJWT
	}
	var payload []byte
	if verify := c.api.cfg.VerifyJWT; verify != nil {
		if payload, err = verify(c.r.Context(), token); err != nil {
			if p := asProblem(err); p.Kind == problem.Unavailable {
				return err
			}
			return errJWT
		}
	} else if payload = payloadOf(token); payload == nil {
		return errJWT
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber() // 64-bit ids keep their digits
	if decoder.Decode(&c.values) != nil {
		return errJWT
	}
	return nil
}

// payloadOf returns the payload of a JWT without verifying it, or nil.
func payloadOf(token string) []byte {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	return payload
}
