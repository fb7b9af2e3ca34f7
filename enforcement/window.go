package enforcement

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// windowUnits are the units of windows, longest first. FormatWindow tries them in
// this order.
var windowUnits = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
}

var windowForm = regexp.MustCompile(`^([1-9][0-9]{0,9})(ms|s|m|h|d)$`)

// ParseWindow parses a window: a whole number without leading zeros and a unit, ms,
// s, m, h or d, from MinWindow to MaxWindow. A day has 24 hours.
func ParseWindow(text string) (time.Duration, error) {
	switch text {
	case "day", "week", "month", "year":
		return 0, fmt.Errorf("calendar windows are not supported yet")
	}
	m := windowForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("must be a whole number with a unit (ms, s, m, h or d), like 1m")
	}
	n, err := strconv.ParseInt(m[1], 10, 64) // at most ten digits
	if err != nil {
		return 0, fmt.Errorf("must be a whole number with a unit: %w", err)
	}
	for _, u := range windowUnits {
		if u.name != m[2] {
			continue
		}
		if n > int64(MaxWindow/u.size) { // before the product, which could overflow
			return 0, fmt.Errorf("must be from %s to %s", FormatWindow(MinWindow), FormatWindow(MaxWindow))
		}
		return time.Duration(n) * u.size, nil
	}
	return 0, fmt.Errorf("unknown unit %q", m[2])
}

// FormatWindow formats a window in the longest unit that divides it: "1m", "90s",
// "1d". ParseWindow parses the result, if the window is within its bounds.
func FormatWindow(window time.Duration) string {
	for _, u := range windowUnits {
		if window%u.size == 0 && window != 0 {
			return strconv.FormatInt(int64(window/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(window.Milliseconds(), 10) + "ms"
}
