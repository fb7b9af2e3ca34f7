package views

import (
	"testing"
	"time"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]Number{
		0: {"0", "0"}, 7: {"7", "7"}, 940: {"940", "940"}, 9_999: {"9,999", "9,999"}, 12_345: {"12.3 k", "12,345"},
		123_456: {"123 k", "123,456"}, 4_560_000: {"4.56 M", "4,560,000"}, -12_345: {"-12.3 k", "-12,345"},
		7_100_000_000: {"7.10 G", "7,100,000,000"},
		999_999:       {"1.00 M", "999,999"}, 99_950: {"100 k", "99,950"},
	} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %v, want %v", n, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		part, whole int64
		want        string
	}{
		{0, 0, "–"},
		{0, 10, "0%"},
		{10, 10, "100%"},
		{18, 1000, "1.8%"},
		{1, 1_000_000, "< 0.01%"},
		{999_999, 1_000_000, "> 99.9%"},
		{5, 1000, "0.50%"},
		{9_999, 10_000, "> 99.9%"},
		{9_996, 10_000, "> 99.9%"},
		{9_940, 10_000, "99.4%"},
	} {
		if got := Percent(test.part, test.whole).Text; got != test.want {
			t.Errorf("Percent(%d, %d) = %q, want %q", test.part, test.whole, got, test.want)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 s", 840 * time.Microsecond: "840 µs", 1340 * time.Microsecond: "1.34 ms", 12 * time.Millisecond: "12.0 ms",
		1340 * time.Millisecond: "1.3 s", 59 * time.Second: "59 s", 90 * time.Second: "1.5 min", time.Hour: "1 h",
		36 * time.Hour: "36 h", 9 * 24 * time.Hour: "9 days",
		999_990 * time.Microsecond: "1 s", 59*time.Second + 990*time.Millisecond: "1 min", 500 * time.Nanosecond: "< 1 µs",
	} {
		if got := Duration(d).Text; got != want {
			t.Errorf("Duration(%s) = %q, want %q", d, got, want)
		}
	}
}

func TestChangeOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		now, before float64
		rise        int
		want        Change
	}{
		{12, 10, 1, Change{Text: "+20.0%", Up: true, Good: true}},
		{12, 10, -1, Change{Text: "+20.0%", Up: true, Bad: true}},
		{8, 10, -1, Change{Text: "-20.0%", Down: true, Good: true}},
		{8, 10, 0, Change{Text: "-20.0%", Down: true}},
		{10, 10, -1, Change{Text: "same as before"}},
		{10, 0, -1, Change{Text: "new", Up: true, Bad: true}},
		{10_001, 10_000, 1, Change{Text: "about the same"}},
		{1000, 2, 1, Change{Text: "500 times as many", Up: true, Good: true}},
	} {
		if got := ChangeOf(test.now, test.before, test.rise); got != test.want {
			t.Errorf("ChangeOf(%g, %g, %d) = %+v, want %+v", test.now, test.before, test.rise, got, test.want)
		}
	}
}

func TestHeatLevel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, most int64
		want    int
	}{{0, 10, 0}, {1, 1000, 1}, {1000, 1000, 9}, {500, 1000, 4}, {5, 0, 0}} {
		if got := HeatLevel(test.n, test.most); got != test.want {
			t.Errorf("HeatLevel(%d, %d) = %d, want %d", test.n, test.most, got, test.want)
		}
	}
}
