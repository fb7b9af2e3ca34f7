package web

import "testing"

// A cell of a CSV file never starts with what a spreadsheet reads as a formula.
func TestCSVText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@x": "'@x", "plain": "plain", "": "", "a=b": "a=b"} {
		if got := CSVText(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
