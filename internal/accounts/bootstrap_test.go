package accounts

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/problem"
)

func TestValidBootstrapKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		strings.Repeat("a", 32):                true,
		strings.Repeat("a", 128):               true,
		"AZaz09._~+/=-AZaz09._~+/=-AZaz09":     true,
		strings.Repeat("a", 31):                false,
		strings.Repeat("a", 129):               false,
		"":                                     false,
		strings.Repeat("a", 31) + " ":          false,
		strings.Repeat("a", 32) + "\n":         false,
		strings.Repeat("ä", 32):                false,
		strings.Repeat("a", 31) + ":":          false,
		"\"" + strings.Repeat("a", 32) + "\"":  false,
		strings.Repeat("a", 16) + "\x00secret": false,
	} {
		err := ValidBootstrapKey(key)
		if (err == nil) != want {
			t.Errorf("ValidBootstrapKey(%q): %v, want fine %v", key, err, want)
		}
		if err != nil && !problem.Is(err, problem.Invalid) {
			t.Errorf("ValidBootstrapKey(%q): %v is not Invalid", key, err)
		}
		if err != nil && len(key) > 16 && strings.Contains(err.Error(), key) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}
