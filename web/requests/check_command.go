package requests

import (
	"strings"

	"github.com/headgate/headgate/web"
)

// Curl returns a curl command that sends body as JSON to address. It reads the API key from the
// shell variable $HEADGATE_TOKEN.
func Curl(address, body string) string {
	return "curl -i " + shellQuoted(address) +
		" \\\n  -H \"Authorization: Bearer $HEADGATE_TOKEN\" \\\n  -H 'Content-Type: application/json' \\\n  -d " + shellQuoted(body)
}

// shellQuoted quotes a text for a shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// A Check is the request body of /v1/check, for commands that visitors copy.
type Check struct {
	Tenant     string            `json:"tenant,omitempty"`
	Method     string            `json:"method,omitempty"`
	Path       string            `json:"path,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Cost       *int64            `json:"cost,omitempty"`
}

// Command returns a curl command that sends the check. origin is the start of the URL, such as
// https://headgate.example.com.
func (b Check) Command(origin string) string {
	return Curl(origin+"/v1/check", web.JSONText(b))
}

// Cost returns the value of cost for a request body. For a cost of 1, which is the default, it
// returns nil, and the body has no cost.
func Cost(cost int64) *int64 {
	if cost == 1 {
		return nil
	}
	return &cost
}

// SampleCheck returns a curl command that sends an example of a check. If the API key belongs
// to a tenant, tenant is "", because the check then needs no tenant.
func SampleCheck(origin, tenant string) string {
	return Check{Tenant: tenant, Method: "GET", Path: "/v1/search", Attributes: map[string]string{"user": "u1"}}.Command(origin)
}
