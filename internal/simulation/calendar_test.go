package simulation

import (
	"strings"
	"testing"
)

func TestCalendarWindows(t *testing.T) {
	t.Parallel()
	// 2026-11-14T22:59:59Z is a second before the 15th in Berlin.
	const berlin = `{"id":"a","start_ms":1794697199000,"time_zone":"Europe/Berlin","billing_anchor_day":15,` +
		`"limits":[{"algorithm":"fixed_window","quota":10000,"window":"month"}],` +
		`"steps":[{"at_ms":0,"cost":10000},{"at_ms":0},{"at_ms":1000,"cost":9999}]}`
	got, err := RunOne(t.Context(), []byte(berlin), Config{NewLimiter: inProcess})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"remaining": 0, "reset_after_ms": 1000, "retry_after_ms": 0`,
		`"allowed": false, "remaining": 0, "reset_after_ms": 1000, "retry_after_ms": 1000`,
		`"remaining": 1, "reset_after_ms": 2592000000`, // 30 days
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(berlin, "Europe/Berlin", "Europe/Atlantis", 1):                   "time_zone",
		strings.Replace(berlin, "Europe/Berlin", "", 1):                                  "time_zone",
		strings.Replace(berlin, "Europe/Berlin", "Local", 1):                             "time_zone",
		strings.Replace(berlin, "Europe/Berlin", "localtime", 1):                         "time_zone",
		strings.Replace(berlin, "Europe/Berlin", "posix/Europe/Berlin", 1):               "time_zone",
		strings.Replace(berlin, `"billing_anchor_day":15`, `"billing_anchor_day":0`, 1):  "billing_anchor_day",
		strings.Replace(berlin, `"billing_anchor_day":15`, `"billing_anchor_day":32`, 1): "billing_anchor_day",
		strings.Replace(berlin, "fixed_window", "sliding_window_counter", 1):             "limits[0].window",
	} {
		if got, err := RunOne(t.Context(), []byte(text), Config{NewLimiter: inProcess}); err == nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, want an error at %s", text, got, want)
		}
	}
}
