package exceptions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// A factor is an integer in thousandths, and people write it as a decimal number: 1.5 is 1500. Both forms are exact,
// because the conversion does not use floating-point numbers.

// maxFactorText is the maximum length of a text that ParseFactor examines. Every valid text is shorter.
const maxFactorText = 32

var errFactor = errors.New("must be a decimal number from 0.001 to 1000 with at most three decimals, like 1.5")

// ParseFactor parses a decimal number from 0.001 to 1000 and returns it in thousandths. The text has the form of a
// JSON number without an exponent. After the third decimal, only zeros may follow. The error says which values are
// valid.
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

// FormatFactor returns a factor in thousandths as a decimal number in its shortest form, which ParseFactor reads.
func FormatFactor(thousandths int64) string {
	text := strconv.FormatInt(thousandths/1000, 10)
	if rest := thousandths % 1000; rest != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%03d", rest), "0")
	}
	return text
}
