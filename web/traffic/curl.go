package traffic

import "strings"

// curl returns a curl command that sends a JSON body. The shell variable $HEADGATE_KEY contains
// the API key.
func curl(address, body string) string {
	return "curl -i " + shellQuoted(address) +
		" \\\n  -H \"Authorization: Bearer $HEADGATE_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d " + shellQuoted(body)
}

// shellQuoted quotes a text for a shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
