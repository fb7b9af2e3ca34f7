package web

import "testing"

// Direction marks are shown, but not in what a form sends back.
func TestShowDirections(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"<p>plain é \u200d</p>":                          "<p>plain é \u200d</p>",
		"<p>a\u202eb\u2066c\u061c\u200f</p>":             `<p>a\u202eb\u2066c\u061c\u200f</p>`,
		"\u202e<b title=\"a\u202eb\">x</b>":              `\u202e<b title="a\u202eb">x</b>`,
		"<input title=\"\u202e\" value=\"a = \u202eb\">": "<input title=\"\\u202e\" value=\"a = \u202eb\">",
		"<textarea name=\"x\">a\u202e</textarea>\u202e":  "<textarea name=\"x\">a\u202e</textarea>\\u202e",
		"<i data-chart=\"{a\u202e}\">":                   `<i data-chart="{a\\u202e}">`,
	} {
		if got := string(showDirections([]byte(page))); got != want {
			t.Errorf("%q: got %q, want %q", page, got, want)
		}
	}
}
