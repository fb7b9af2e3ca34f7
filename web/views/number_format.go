package views

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Number is a number for people. Text is a short form. Exact is the exact number, which the
// page shows when the pointer is over the text.
type Number struct{ Text, Exact string }

// Count returns a Number for a count: "940", "12.3 k", "4.56 M".
func Count(n int64) Number {
	exact := grouped(n)
	if n > -10_000 && n < 10_000 {
		return Number{exact, exact}
	}
	size := 1e3
	for _, unit := range []string{"k", "M", "G"} {
		// The bound is 999.5 instead of 1000, because 999,999 must become 1.00 M and not 1000 k.
		if math.Abs(float64(n))/size < 999.5 {
			return Number{threeDigits(float64(n)/size) + " " + unit, exact}
		}
		size *= 1e3
	}
	return Number{threeDigits(float64(n)/size) + " T", exact}
}

// Quantity returns a number with its noun: "1 node", "3 nodes".
func Quantity(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n).Text + " " + many
}

// threeDigits formats f with three significant digits. f must be below 1,000.
func threeDigits(f float64) string {
	places := 0
	switch a := math.Abs(f); {
	case a < 9.995:
		places = 2
	case a < 99.95:
		places = 1
	}
	return strconv.FormatFloat(f, 'f', places, 64)
}

// grouped returns a number with commas.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Percent returns part as a percentage of whole: "1.8%", "0%", "< 0.01%", or "–" if whole is 0.
func Percent(part, whole int64) Number {
	if whole == 0 {
		return Number{"–", "no data"}
	}
	return Number{percentWords(part, whole), grouped(part) + " of " + grouped(whole)}
}

func percentWords(part, whole int64) string {
	p := 100 * float64(part) / float64(whole)
	switch {
	case part == 0:
		return "0%"
	case part == whole:
		return "100%"
	case p < 0.01:
		return "< 0.01%"
	case p > 99.9:
		return "> 99.9%"
	case p < 1:
		return strconv.FormatFloat(p, 'f', 2, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// Duration returns a duration with two or three digits: "840 µs", "1.34 s", "12 min",
// "3.5 h", "9 days".
func Duration(d time.Duration) Number {
	exact := d.String()
	// From each bound on, the number is shown in the next unit, because it would be rounded up to
	// 1 of that unit.
	switch a := d.Abs(); {
	case a == 0:
		return Number{"0 s", exact}
	case a < time.Microsecond:
		return Number{"< 1 µs", exact}
	case a < time.Millisecond:
		return Number{strconv.FormatInt(d.Microseconds(), 10) + " µs", exact}
	case a < 999_500*time.Microsecond:
		return Number{threeDigits(float64(d)/float64(time.Millisecond)) + " ms", exact}
	case a < 59_950*time.Millisecond:
		return Number{short(float64(d)/float64(time.Second)) + " s", exact}
	case a < time.Hour-3*time.Second:
		return Number{short(float64(d)/float64(time.Minute)) + " min", exact}
	case a < 48*time.Hour:
		return Number{short(float64(d)/float64(time.Hour)) + " h", exact}
	}
	return Number{short(float64(d)/float64(24*time.Hour)) + " days", exact}
}

// short formats f with one decimal. If the decimal is zero, it leaves it out.
func short(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// A Change compares a number with the same number in the previous time range.
type Change struct {
	Text string // "+12%", "new", "same"
	// Up and Down say whether the number rose or fell. Good and Bad say whether this change is
	// good or bad. Both are false if it is neither.
	Up, Down, Good, Bad bool
}

// ChangeOf compares now with before. rise says what a rise means: +1 good, -1 bad, 0 neither.
func ChangeOf(now, before float64, rise int) Change {
	c := Change{Up: now > before, Down: now < before}
	c.Good = rise > 0 && c.Up || rise < 0 && c.Down
	c.Bad = rise < 0 && c.Up || rise > 0 && c.Down
	switch {
	case now == before:
		c.Text = "same as before"
	case before == 0:
		c.Text = "new"
	default:
		p := 100 * (now - before) / before
		switch {
		case math.Abs(p) < 0.1:
			c.Text = "about the same"
			c.Up, c.Down, c.Good, c.Bad = false, false, false, false
		case p > 999:
			c.Text = fmt.Sprintf("%s times as many", threeDigits(min(999, now/before)))
		default:
			c.Text = fmt.Sprintf("%+.1f%%", p)
		}
	}
	return c
}
