package enforcement

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// windowUnits has the units in which windows are written, longest first. FormatWindow uses the
// first unit that divides a window.
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

// ParseWindow parses the length of a window: a whole number without leading zeros,
// followed by the unit ms, s, m, h or d. A day has 24 hours. The length must be from
// MinWindow to MaxWindow.
func ParseWindow(text string) (time.Duration, error) {
	if _, calendar := ParsePeriod(text); calendar {
		return 0, fmt.Errorf("must be a length, like 30d: only the limits of plans have calendar windows")
	}
	m := windowForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("must be a whole number with a unit (ms, s, m, h or d), like 1m")
	}
	n, err := strconv.ParseInt(m[1], 10, 64) // no overflow: at most ten digits
	if err != nil {
		return 0, fmt.Errorf("must be a whole number with a unit: %w", err)
	}
	for _, u := range windowUnits {
		if u.name != m[2] {
			continue
		}
		if n > int64(MaxWindow/u.size) { // checked before the multiplication, which could overflow
			return 0, fmt.Errorf("must be from %s to %s", FormatWindow(MinWindow), FormatWindow(MaxWindow))
		}
		return time.Duration(n) * u.size, nil
	}
	return 0, fmt.Errorf("unknown unit %q", m[2])
}

// WindowText returns the window of a limit in the form of the API: the name of its period, or its
// length.
func (l Limit) WindowText() string {
	if l.Period != NoPeriod {
		return l.Period.String()
	}
	return FormatWindow(l.Window)
}

// ReadWindow sets the window of a limit from its form in the API: a length, or the name of a
// period. For a period, it also sets the default anchor. If the text is invalid, fault is an error
// message; otherwise it is "".
func (l *Limit) ReadWindow(text string) (fault string) {
	if p, ok := ParsePeriod(text); ok {
		l.Period, l.Window, l.Anchor = p, p.Longest(), p.DefaultAnchor()
		return ""
	}
	var err error
	if l.Window, err = ParseWindow(text); err != nil {
		return err.Error() + "; a fixed_window can also have day, week, month, quarter or year"
	}
	return ""
}

// FormatWindow returns the length of a window in the longest unit that divides it: "1m", "90s",
// "1d". ParseWindow parses the result if the length is within its bounds.
func FormatWindow(window time.Duration) string {
	for _, u := range windowUnits {
		if window%u.size == 0 && window != 0 {
			return strconv.FormatInt(int64(window/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(window.Milliseconds(), 10) + "ms"
}
