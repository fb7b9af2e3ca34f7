package enforcement

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseWindow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"1ms": time.Millisecond, "1s": time.Second, "1m": time.Minute, "1h": time.Hour, "1d": 24 * time.Hour,
		"366d": 366 * 24 * time.Hour, "8784h": 366 * 24 * time.Hour, "60000ms": time.Minute,
		"9999999999ms": 9999999999 * time.Millisecond,
	} {
		if got, err := ParseWindow(text); err != nil || got != want {
			t.Errorf("ParseWindow(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "1", "m", "0s", "01s", "-1s", "+1s", "1.5s", "1 s", " 1s", "1s ", "1S", "1us", "1ns", "1w", "1m30s",
		"367d", "8785h", "9999999999d", "99999999999ms", "1s\n", "١s", "day", "week", "month", "quarter", "year",
	} {
		if got, err := ParseWindow(text); err == nil {
			t.Errorf("ParseWindow(%q) = %v, want an error", text, got)
		}
	}
	if _, err := ParseWindow("month"); err == nil || err.Error() != "must be a length, like 30d: only the limits of plans have calendar windows" {
		t.Errorf("ParseWindow(month): %v", err)
	}
}

func TestFormatWindow(t *testing.T) {
	t.Parallel()
	for want, window := range map[string]time.Duration{
		"1m": 60000 * time.Millisecond, "1d": 24 * time.Hour, "90s": 90 * time.Second, "1500ms": 1500 * time.Millisecond,
		"25h": 25 * time.Hour, "0ms": 0,
	} {
		if got := FormatWindow(window); got != want {
			t.Errorf("FormatWindow(%v) = %q, want %q", window, got, want)
		}
	}
}

func TestWindowRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom(windowUnits).Draw(t, "unit").size
		window := unit * time.Duration(rapid.Int64Range(1, int64(MaxWindow/unit)).Draw(t, "n"))
		text := FormatWindow(window)
		// The form has at most ten digits. Longer windows that are no whole number of seconds
		// have no text.
		if len(text) > 12 {
			t.Skip("no text")
		}
		if got, err := ParseWindow(text); err != nil || got != window {
			t.Fatalf("ParseWindow(%q) = %v, %v; want %v", text, got, err, window)
		}
	})
}

func FuzzParseWindow(f *testing.F) {
	for _, text := range []string{"1m", "90s", "366d", "month", "0s", "9999999999d", "1.5h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		window, err := ParseWindow(text)
		if err != nil {
			return
		}
		if window < MinWindow || window > MaxWindow || window%time.Millisecond != 0 {
			t.Fatalf("ParseWindow(%q) = %v: out of bounds", text, window)
		}
		again, err := ParseWindow(FormatWindow(window))
		if err != nil || again != window {
			t.Fatalf("%q: %v is %q, read back as %v, %v", text, window, FormatWindow(window), again, err)
		}
	})
}
