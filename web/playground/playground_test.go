package playground

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/web"
)

// playing is an address of the playground.
func playing(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return q
}

// Each pattern comes when it says.
func TestPatternsComeWhenTheySay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query url.Values
		want  string // milliseconds, with xN for N at once
	}{
		"steady":         {playing("pattern", "steady", "requests", "3", "every", "1s", "duration", "2s"), "0 333 666 1000 1333 1666"},
		"bursts":         {playing("pattern", "bursts", "requests", "5", "every", "1s", "duration", "2500ms"), "0x5 1000x5 2000x5"},
		"ramp":           {playing("pattern", "ramp", "requests", "8", "every", "4s", "duration", "4s"), "2000 2828 3464"},
		"edge":           {playing("pattern", "edge", "requests", "3", "window", "6s", "duration", "12s"), "5000 5333 5666 6000 6333 6666"},
		"edge, opened":   {playing("pattern", "edge", "requests", "1", "window", "6s", "duration", "12s", "anchor", "first_hit"), "0 5000 6000"},
		"edge, smallest": {playing("pattern", "edge", "requests", "2", "window", "2ms", "duration", "4ms"), "1x2 2x2"},
		"own":            {playing("pattern", "own", "times", "2, 0.5;1500ms\n0x3 0.0625", "duration", "1m"), ""},
		"own times":      {playing("pattern", "own", "times", "2, 0.5;1500ms 0x3 2s", "duration", "1m"), "0x3 500 1500 2000x2"},
		"own in minutes": {playing("pattern", "own", "times", "1.5m 1h", "duration", "2h"), "90000 3600000"},
	} {
		g := readPlayForm(c.query)
		if c.want == "" {
			if g.faults.Err() == nil {
				t.Errorf("%s is taken", name)
			}
			continue
		}
		var got []string
		for _, a := range g.arrivals {
			text := strconv.FormatInt(a.at, 10)
			if a.n > 1 {
				text += "x" + strconv.FormatInt(a.n, 10)
			}
			got = append(got, text)
		}
		if err := g.faults.Err(); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v %q, want %s", name, err, got, c.want)
		}
	}
	of := func(seed string) []arrival {
		return readPlayForm(playing("pattern", "random", "requests", "1000", "every", "1m", "duration", "4m", "seed", seed)).arrivals
	}
	var n int64
	for _, a := range of("1") {
		n += a.n
	}
	if !slices.Equal(of("1"), of("1")) || slices.Equal(of("1"), of("2")) || n < 3700 || n > 4300 {
		t.Errorf("random: %d requests, of 4,000 on average; a seed must tell the times", n)
	}
}

// The most in any one window is that of every window there is.
func TestMostInAnyWindowIsExact(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		g := &playForm{window: time.Duration(1+dice.Int64N(40)) * time.Millisecond, cost: dice.Int64N(4)}
		var p played
		at := int64(0)
		for range dice.IntN(30) {
			at += 1 + dice.Int64N(12)
			n := 1 + dice.Int64N(4)
			p.answers = append(p.answers, playedAnswer{arrival: arrival{at, n}, allowed: dice.Int64N(n + 1)})
		}
		var want int64
		for from := range at + 1 {
			var units int64
			for _, a := range p.answers {
				if a.at >= from && a.at < from+g.window.Milliseconds() {
					units += a.allowed * g.cost
				}
			}
			want = max(want, units)
		}
		got, from := p.most(g)
		var units int64
		for _, a := range p.answers {
			if a.at >= from && a.at < from+g.window.Milliseconds() {
				units += a.allowed * g.cost
			}
		}
		if got != want || got != units {
			t.Fatalf("%d from %d (there are %d), want %d of %+v", got, from, units, want, p.answers)
		}
	}
}

// A run of refusals is across instants, and what passes ends it.
func TestLongestRun(t *testing.T) {
	t.Parallel()
	p := played{answers: []playedAnswer{
		{arrival: arrival{0, 3}, allowed: 1}, {arrival: arrival{5, 1}}, {arrival: arrival{9, 4}, allowed: 2}, {arrival: arrival{12, 1}}, {arrival: arrival{20, 1}, allowed: 1},
	}}
	if n, from := p.longestRun(); n != 3 || from != 0 {
		t.Errorf("%d from %d", n, from)
	}
}

// The limit to use in a plan is one that plans accept.
func TestPlayedLimitFitsAPlan(t *testing.T) {
	t.Parallel()
	g := readPlayForm(playing("burst", "20", "anchor", "first_hit"))
	for _, l := range lanes {
		text := web.JSONText(g.limit(l.algorithm))
		var read struct {
			Algorithm, Window, Anchor string
			Burst                     int64
		}
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			t.Fatal(err)
		}
		if a, known := enforcement.ParseAlgorithm(read.Algorithm); !known || a != l.algorithm || (read.Burst == 20) != a.Bucket() || (read.Anchor != "") != a.Windowed() || read.Window != "1m" {
			t.Errorf("%s", text)
		}
	}
}

// A calendar window is that of the fixed window; the others have a window of its length. A grant is
// for the fixed window, and a time to hold a place for concurrency.
func TestPlayedCalendarWindowsGrantsAndPlaces(t *testing.T) {
	t.Parallel()
	q := playing("window", "month", "max_rollover", "5", "grant", "7", "hold", "5s", "pattern", "steady", "every", "1d", "duration", "40d")
	for _, l := range lanes {
		q.Add("algorithm", l.algorithm.String())
	}
	g := readPlayForm(q)
	if err := g.faults.Err(); err != nil {
		t.Fatal(err)
	}
	for _, l := range lanes {
		s := g.scenario(l.algorithm, false)
		if faults := s.Limits[0].Validate(); len(faults) > 0 {
			t.Errorf("%s: %v", l.title, faults)
		}
		fixed, granted, held := l.algorithm == enforcement.FixedWindow, s.Steps[0].Op == "grant", s.Steps[1].TTL == 5000
		if fixed != granted || fixed != (s.Limits[0].MaxRollover == 5) || held != (l.algorithm == enforcement.Concurrency) {
			t.Errorf("%s: %+v", l.title, s)
		}
		want := "31d"
		if fixed {
			want = "month"
		}
		if got := s.Limits[0].WindowText(); got != want || s.Start != epoch {
			t.Errorf("%s: window %s, want %s; start %d", l.title, got, want, s.Start)
		}
	}
	for _, c := range []struct{ window, zone, day, start, length string }{
		{"day", "", "1", "2026-01-01T00:00:00Z", "24h0m0s"},
		{"week", "", "1", "2026-01-05T00:00:00Z", "168h0m0s"},
		{"month", "", "1", "2026-01-01T00:00:00Z", "744h0m0s"},
		{"quarter", "", "1", "2026-01-01T00:00:00Z", "2160h0m0s"},
		{"year", "", "1", "2026-01-01T00:00:00Z", "8760h0m0s"},
		{"day", "Europe/Berlin", "1", "2026-01-01T23:00:00Z", "24h0m0s"},
		{"month", "America/Los_Angeles", "15", "2026-01-15T08:00:00Z", "744h0m0s"},
		{"quarter", "Europe/Berlin", "1", "2026-03-31T22:00:00Z", "2184h0m0s"},
	} {
		day, err := strconv.Atoi(c.day)
		if err != nil {
			t.Fatal(err)
		}
		calendar, err := enforcement.NewCalendar(c.zone, day)
		if err != nil {
			t.Fatal(err)
		}
		g := readPlayForm(playing("window", c.window, "time_zone", c.zone, "billing_anchor_day", c.day, "pattern", "own", "times", "0", "duration", "366d"))
		s := g.scenario(enforcement.FixedWindow, false)
		if got := time.UnixMilli(s.Start).UTC().Format(time.RFC3339); got != c.start || g.window.String() != c.length || s.Zone != c.zone || fmt.Sprint(s.Day) != c.day {
			t.Errorf("%v: start %s, a window of %s, scenario %+v, faults %v", c, got, g.window, s, g.faults)
		}
		m := s.Limits[0].Compile(1).In(calendar, s.Start*1000)
		i := slices.Index(m.Edges[:2], s.Start*1000)
		if i < 0 || m.Edges[i+1]-m.Edges[i] != g.window.Microseconds() {
			t.Errorf("%v: no window begins at %d, or it is not %s long: %v", c, s.Start, g.window, m.Edges)
		}
		if other := g.scenario(enforcement.TokenBucket, false); other.Zone != "" || other.Day != 0 {
			t.Errorf("%v: a token bucket has %+v", c, other)
		}
	}
	for _, bad := range []url.Values{
		playing("grant", "0"), playing("grant", "5", "mode", "degrade"), playing("grant", "5", "quota", "0"), playing("hold", "month"), playing("max_rollover", "x"),
		playing("window", "month", "time_zone", "Mars/Base", "duration", "40d"), playing("time_zone", "Europe/Berlin"), playing("billing_anchor_day", "2"),
		playing("window", "month", "billing_anchor_day", "32", "duration", "40d"), playing("window", "month", "time_zone", "Local", "duration", "40d"),
		playing("window", "month", "time_zone", "localtime", "duration", "40d"),
		playing("max_rollover", "5"), playing("hold", "5s"), playing("grant", "5", "algorithm", "token_bucket"),
		playing("max_rollover", "5", "window", "month", "duration", "40d", "algorithm", "token_bucket"),
	} {
		if readPlayForm(bad).faults.Err() == nil {
			t.Errorf("%v has no error", bad)
		}
	}
}
