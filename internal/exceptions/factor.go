package exceptions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// A factor is stored as an integer in thousandths, for example 1500. People write it as a
// decimal number, for example 1.5. The conversion uses no floating-point numbers, so it is
// exact.

// maxFactorText is the maximum length of a text that ParseFactor accepts. No valid factor needs
// more characters.
const maxFactorText = 32

var errFactor = errors.New("must be a decimal number from 0.001 to 1000 with at most three decimals, like 1.5")

// ParseFactor parses a decimal number from 0.001 to 1000 and returns it in thousandths. The
// text must be a JSON number without an exponent. After the third decimal, only zeros are
// valid. The error message says which values are valid.
func ParseFactor(text string) (int64, error) {
	whole, decimals, point := strings.Cut(text, ".")
	if len(text) > maxFactorText || !digits(whole) || point && !digits(decimals) || len(whole) > 1 && whole[0] == '0' {
		return 0, errFactor
	}
	decimals = strings.TrimRight(decimals, "0")
	if len(whole) > 4 || len(decimals) > 3 {
		return 0, errFactor
	}
	n, err := strconv.ParseInt(whole+decimals+"000"[len(decimals):], 10, 64)
	if err != nil || n < 1 || n > enforcement.MaxFactor {
		return 0, errFactor
	}
	return n, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// FormatFactor returns the shortest decimal number for a factor in thousandths. ParseFactor
// returns the same factor for this text.
func FormatFactor(thousandths int64) string {
	text := strconv.FormatInt(thousandths/1000, 10)
	if rest := thousandths % 1000; rest != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%03d", rest), "0")
	}
	return text
}
