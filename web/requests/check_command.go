package requests

import (
	"strings"

	"github.com/headgate/headgate/web"
)

// Curl returns a curl command that sends a JSON body. The shell variable $HEADGATE_KEY contains
// the API key.
func Curl(address, body string) string {
	return "curl -i " + shellQuoted(address) +
		" \\\n  -H \"Authorization: Bearer $HEADGATE_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d " + shellQuoted(body)
}

// shellQuoted quotes a text for a shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// A Check is the body of a check in a command.
type Check struct {
	Tenant     string            `json:"tenant,omitempty"`
	Method     string            `json:"method,omitempty"`
	Path       string            `json:"path,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Cost       *int64            `json:"cost,omitempty"`
}

// Command returns the check as a command to paste.
func (b Check) Command(origin string) string {
	return Curl(origin+"/v1/check", web.JSONText(b))
}

// Cost returns the cost of a body, which leaves out a cost of 1.
func Cost(cost int64) *int64 {
	if cost == 1 {
		return nil
	}
	return &cost
}

// SampleCheck returns a check to paste. tenant is "" for the tenant of the key.
func SampleCheck(origin, tenant string) string {
	return Check{Tenant: tenant, Method: "GET", Path: "/v1/search", Attributes: map[string]string{"user": "u1"}}.Command(origin)
}
