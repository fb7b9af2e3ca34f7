package api_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/testseed"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// calendarWorld has a policy for each period at the path with its name, counted by user, and a tenant that is in a time zone.
func calendarWorld(t *testing.T, zone string, anchorDay int) *world {
	t.Helper()
	w := newWorld(t)
	var list []plans.Policy
	for p := enforcement.Day; p <= enforcement.Year; p++ {
		l := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 2, Window: p.Longest(), Period: p, Anchor: p.DefaultAnchor()}
		if p == enforcement.Week {
			l.Anchor = enforcement.Sunday
		}
		list = append(list, plans.Policy{
			Slug: p.String(), Match: plans.Match{Path: "/" + p.String()}, CountBy: []string{"user"}, Limits: []enforcement.Limit{l},
		})
	}
	w.policies(list...)
	w.tenant(func(d *tenants.Document) { d.TimeZone, d.BillingAnchorDay = zone, anchorDay })
	return w
}

// holdsUntil uses up the quota of a period at an instant. It compares all times of the answers with the edges of the window,
// and the decisions just before and at the end of the window.
func (w *world) holdsUntil(p enforcement.Period, at, from, until time.Time) {
	w.t.Helper()
	user := fmt.Sprint(at.UnixNano(), p)
	check := func(cost int, now time.Time, status int) answer {
		w.t.Helper()
		w.now.Store(now.UnixMicro())
		a := w.do(call{method: "POST", path: "/v1/check", key: w.operatorCheck, body: fmt.Sprintf(
			`{"tenant":"acme","method":"GET","path":"/%s","attributes":{"user":%q},"cost":%d}`, p, user, cost)})
		if a.status != status {
			w.t.Fatalf("%s at %s: %d, want %d: %s", p, now, a.status, status, a.body)
		}
		return a
	}
	length := until.Sub(from)
	millis, seconds := (until.Sub(at) + time.Millisecond - 1).Milliseconds(), int64((until.Sub(at)+time.Second-1)/time.Second)
	for _, a := range []answer{check(2, at, 200), check(1, at, 429)} {
		for _, want := range []string{fmt.Sprintf(`"window_ms":%d,`, length.Milliseconds()), fmt.Sprintf(`"reset_after_ms":%d,`, millis)} {
			if !strings.Contains(a.body, want) {
				w.t.Errorf("%s at %s: no %s in %s", p, at, want, a.body)
			}
		}
		for name, want := range map[string]string{
			"RateLimit":        fmt.Sprintf(`"%s";r=0;t=%d`, p, seconds),
			"RateLimit-Policy": fmt.Sprintf(`"%s";q=2;w=%d`, p, length/time.Second),
			"Retry-After":      map[bool]string{true: fmt.Sprint(seconds)}[a.status == 429],
		} {
			if got := a.header.Get(name); got != want {
				w.t.Errorf("%s at %s: %s: %s, want %s", p, at, name, got, want)
			}
		}
		if a.status == 429 && !strings.Contains(a.body, fmt.Sprintf(`"retry_after_ms":%d,`, millis)) {
			w.t.Errorf("%s at %s: no retry_after_ms %d in %s", p, at, millis, a.body)
		}
	}
	check(1, until.Add(-time.Microsecond), 429)
	check(2, until, 200)
}

// Days of 23 and 25 hours, a skipped day, and the ends of months, with edges that are written down.
func TestCalendarEdges(t *testing.T) {
	t.Parallel()
	day, month, quarter, year := enforcement.Day, enforcement.Month, enforcement.Quarter, enforcement.Year
	for _, c := range []struct {
		zone            string
		day             int
		period          enforcement.Period
		at, from, until string
	}{
		{"America/New_York", 1, day, "2026-11-01T23:59:59-05:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		{"America/New_York", 1, day, "2027-03-14T01:59:59-05:00", "2027-03-14T00:00:00-05:00", "2027-03-15T00:00:00-04:00"},
		{"America/New_York", 31, month, "2027-02-28T12:00:00-05:00", "2027-02-28T00:00:00-05:00", "2027-03-31T00:00:00-04:00"},
		{"America/New_York", 31, month, "2027-04-30T00:00:00-04:00", "2027-04-30T00:00:00-04:00", "2027-05-31T00:00:00-04:00"},
		{"America/New_York", 1, enforcement.Week, "2026-10-31T23:59:59-04:00", "2026-10-25T00:00:00-04:00", "2026-11-01T00:00:00-04:00"},
		{"Europe/Berlin", 1, day, "2026-10-25T02:30:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"Europe/Berlin", 1, day, "2027-03-28T03:00:00+02:00", "2027-03-28T00:00:00+01:00", "2027-03-29T00:00:00+02:00"},
		{"Europe/Berlin", 30, month, "2028-02-29T00:00:00+01:00", "2028-02-29T00:00:00+01:00", "2028-03-30T00:00:00+02:00"},
		{"Europe/Berlin", 29, month, "2027-02-27T23:59:59.999+01:00", "2027-01-29T00:00:00+01:00", "2027-02-28T00:00:00+01:00"},
		{"Europe/Berlin", 31, quarter, "2027-04-01T00:00:00+02:00", "2027-01-31T00:00:00+01:00", "2027-04-30T00:00:00+02:00"},
		{"Europe/Berlin", 29, year, "2027-01-28T23:59:59+01:00", "2026-01-29T00:00:00+01:00", "2027-01-29T00:00:00+01:00"},
		{"Pacific/Apia", 1, day, "2011-12-29T23:59:59-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"Pacific/Apia", 30, month, "2011-12-29T23:59:59-10:00", "2011-11-30T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"Pacific/Apia", 30, month, "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-30T00:00:00+14:00"},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.zone, c.period, c.at), func(t *testing.T) {
			t.Parallel()
			at, err := time.Parse(time.RFC3339, c.at)
			must(t, err)
			from, err := time.Parse(time.RFC3339, c.from)
			must(t, err)
			until, err := time.Parse(time.RFC3339, c.until)
			must(t, err)
			calendarWorld(t, c.zone, c.day).holdsUntil(c.period, at, from, until)
		})
	}
}

// At random instants, half of them near a change of the offset, all answers agree with the edges of the calendar.
func TestCalendarAnswers(t *testing.T) {
	t.Parallel()
	seed := testseed.Seed(t)
	for i, zone := range []string{"America/New_York", "Europe/Berlin", "Pacific/Apia"} {
		for anchorDay := 29; anchorDay <= 31; anchorDay++ {
			t.Run(fmt.Sprint(zone, anchorDay), func(t *testing.T) {
				t.Parallel()
				w, r := calendarWorld(t, zone, anchorDay), rand.New(rand.NewPCG(seed, uint64(100*i+anchorDay)))
				c, err := enforcement.NewCalendar(zone, anchorDay)
				must(t, err)
				for range 40 {
					at := time.UnixMicro(time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() + r.Int64N(30*366*24*3600*1e6))
					if _, change := at.In(c.Zone).ZoneBounds(); r.IntN(2) == 0 && !change.IsZero() {
						at = change.Add(time.Duration(r.Int64N(int64(60*time.Hour)))/1000*1000 - 30*time.Hour)
					}
					p := enforcement.Day + enforcement.Period(r.IntN(5))
					from, until := c.Window(p, time.Sunday, at)
					w.holdsUntil(p, at, from, until)
				}
			})
		}
	}
}

// Exceptions, batches and resets on calendar windows. An override that sets the window of a limit has no effect when the plan
// gives that limit a calendar window: the numbers of the plan are in force.
func TestCalendarExceptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := func(window time.Duration, period enforcement.Period) plans.Policy {
		l := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 10, Window: window, Period: period, Anchor: period.DefaultAnchor()}
		return plans.Policy{Slug: "quota", CountBy: []string{"user"}, Limits: []enforcement.Limit{l}}
	}
	w.policies(at(time.Hour, enforcement.NoPeriod))
	w.set("overrides", `{"policy":"quota","attribute":"user","value":"u0","limits":[{"name":"l1","window":"1m","quota":3}],"reason":"r"}`)
	w.policies(at(enforcement.Month.Longest(), enforcement.Month))
	w.set("overrides", `{"policy":"quota","attribute":"user","value":"u1","factor":0.5,"reason":"r"}`)
	w.set("overrides", `{"policy":"quota","attribute":"user","value":"u2","limits":[{"name":"l1","quota":20}],"reason":"r"}`)
	w.set("lists", `{"list":"allow","attribute":"user","value":"u3","reason":"r"}`)
	w.set("blocks", `{"policy":"quota","key":{"user":"u4"},"reason":"r","expires_at":"2026-11-21T10:00:00Z"}`)
	check := func(user string, cost, status int, wants ...string) {
		t.Helper()
		a := w.do(call{method: "POST", path: "/v1/check", key: w.operatorCheck, body: fmt.Sprintf(
			`{"tenant":"acme","attributes":{"user":%q},"cost":%d}`, user, cost)})
		for _, want := range wants {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s: no %s in %s", user, want, a.body)
			}
		}
		if a.status != status {
			t.Errorf("%s with the cost %d: %d, want %d: %s", user, cost, a.status, status, a.body)
		}
	}
	const november, until = `"window_ms":2592000000`, `"reset_after_ms":831600000` // 21 November, 09:00, to 1 December in UTC
	check("u0", 10, 200, november, until, `"quota":10,`)
	check("u1", 5, 200, november, until, `"quota":5,`)
	check("u1", 1, 429, november, until)
	check("u2", 20, 200, november, until, `"quota":20,`)
	check("u2", 1, 429, november, until)
	check("u3", 1000, 200, "allowed_by_list")
	check("u4", 1, 429, `"blocked"`)
	post := func(path, body string) answer {
		return w.do(call{method: "POST", path: "/v1/tenants/acme/" + path, key: w.operator, body: body})
	}
	if a := post("overrides", `{"policy":"quota","limits":[{"name":"l1","window":"1d"}],"reason":"r"}`); a.status != 422 ||
		!strings.Contains(a.body, "/limits/0/window") {
		t.Errorf("an override of the window: %d %s", a.status, a.body)
	}
	if a := post("reset", `{"policy":"quota","key":{"user":"u1"},"reason":"r"}`); a.status/100 != 2 {
		t.Errorf("the reset: %d %s", a.status, a.body)
	}
	check("u1", 5, 200, until)
	item := `{"tenant":"acme","attributes":{"user":"u5"},"cost":6}`
	batch := call{method: "POST", path: "/v1/check/batch", key: w.operatorCheck, body: `{"checks":[` + item + "," + item + `]}`}
	if a := w.do(batch); a.status != 200 ||
		strings.Count(a.body, november) != 2 || !strings.Contains(a.body, `"status":429`) || strings.Contains(a.body, `"remaining":10,`) {
		t.Errorf("the batch: %d %s", a.status, a.body)
	}
}
