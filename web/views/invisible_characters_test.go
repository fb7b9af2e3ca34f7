package views

import "testing"

// What cannot be seen, or turns the direction of what follows, is shown by its
// number; letters of every script stay.
func TestPieces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                     "",
		"Ada Lovelace":         "Ada Lovelace",
		"Zoë Ñandú 李 محمد עדה": "Zoë Ñandú 李 محمد עדה",
		"a\u202eb":             "a[U+202E]b",
		"\u2066x\u2069":        "[U+2066]x[U+2069]",
		"ad\u200bmin":          "ad[U+200B]min",
		"\ufeffadmin":          "[U+FEFF]admin",
		"a\u00adb":             "a[U+00AD]b",
		"a\x00\x1b[31m":        "a[U+0000][U+001B][31m",
		"a\u00a0b":             "a[U+00A0]b",
		"a\u2028b":             "a[U+2028]b",
		"\u3164":               "[U+3164]",
		"\ue000":               "[U+E000]",
		"a\xffb":               "a[\\xFF]b",
		"\U000e0041":           "[U+E0041]",
		"tab\there\nline":      "tab[U+0009]here[U+000A]line",
	} {
		got := ""
		for _, p := range pieces(text) {
			if p.Escape {
				got += "[" + p.Text + "]"
			} else {
				got += p.Text
			}
		}
		if got != want {
			t.Errorf("Pieces(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestMixedAlphabets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"paypal": false, "pаypal": true, "Иван Smith": false, "Ηeadgate": true, "αβγ": false, "李Smith": false, "": false,
	} {
		if mixedAlphabets(text) != want {
			t.Errorf("MixedAlphabets(%q) is not %v", text, want)
		}
	}
}
