package accounts

import (
	"regexp"

	"github.com/headgate/headgate/internal/problem"
)

var bootstrapForm = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{32,128}$`)

// ValidBootstrapKey returns an error for a key that HEADGATE_BOOTSTRAP_KEY cannot
// have. Automation chooses that key, so it needs no checksum, and its form is one
// that any secret store can generate. The error does not contain the key.
func ValidBootstrapKey(key string) error {
	if !bootstrapForm.MatchString(key) {
		return problem.New(problem.Invalid, "must be 32 to 128 characters out of A-Z a-z 0-9 . _ ~ + / = -")
	}
	return nil
}
