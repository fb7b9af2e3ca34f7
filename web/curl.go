package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Curl is a call with a JSON body to paste into a shell; the key comes from
// $HEADGATE_KEY.
func Curl(address, body string) string {
	return "curl -i " + shellQuoted(address) +
		" \\\n  -H \"Authorization: Bearer $HEADGATE_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d " + shellQuoted(body)
}

// shellQuoted puts text in single quotes for a shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// JSONText is a value as JSON in letters that everybody can see: what is pasted
// is what is read.
func JSONText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return "null" // texts, numbers and maps of them always encode
	}
	var out strings.Builder
	for _, r := range strings.TrimSpace(b.String()) {
		switch {
		case r < 0x7f:
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
