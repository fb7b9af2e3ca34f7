package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/internal/simulation"
)

// playing returns the query parameters of the playground.
func playing(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return q
}

// A laneRow is a row in the table of one algorithm.
type laneRow struct{ at, allowed, refused, left int64 }

func whole(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	must(t, err)
	return n
}

func laneRows(t *testing.T, lane *html.Node) (rows []laneRow) {
	t.Helper()
	for _, tr := range find(lane, "data-at") {
		var cells []string
		for n := range tr.Descendants() {
			if n.Data == "td" {
				cells = append(cells, textIn(n))
			}
		}
		rows = append(rows, laneRow{whole(t, attr(tr, "data-at")), whole(t, cells[0]), whole(t, cells[1]), whole(t, cells[2])})
	}
	return rows
}

// The chart agrees with the simulation: for every algorithm and pattern, the rows equal those
// of RunOne for the scenario of the page.
func TestDrawnDecisionsAreTheSimulations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := []string{"algorithm", "fixed_window", "algorithm", "sliding_window_counter", "algorithm", "sliding_window_log", "algorithm", "token_bucket", "algorithm", "gcra", "algorithm", "leaky_bucket", "algorithm", "concurrency"}
	for _, pairs := range [][]string{
		{},
		{"anchor", "first_hit"},
		{"pattern", "steady", "requests", "15", "duration", "4m"},
		{"pattern", "bursts", "requests", "15", "every", "30s", "burst", "4"},
		{"pattern", "ramp", "requests", "30", "duration", "4m", "cost", "3"},
		{"pattern", "random", "requests", "12", "duration", "5m"},
		{"pattern", "own", "times", "0x12 1 60x3 119.999", "cost", "0"},
		{"quota", "0"},
		{"window", "7s", "duration", "30s"},
	} {
		query := playing(append(slices.Clone(all), pairs...)...).Encode()
		page := w.get("/playground?"+query, "acme-viewer")
		if page.Code != http.StatusOK {
			t.Fatalf("%v: %d", pairs, page.Code)
		}
		tree := page.tree(t)
		lines := strings.Split(strings.TrimSpace(w.get("/playground/scenarios?"+query, "acme-viewer").body), "\n")
		if len(lines) != len(all)/2 {
			t.Fatalf("%v: %d scenarios", pairs, len(lines))
		}
		for _, line := range lines {
			var asked struct {
				ID    string
				Steps []struct {
					Repeat *int64
				}
			}
			var answer struct {
				Steps []struct {
					At      int64 `json:"at_ms"`
					Allowed int64 `json:"allowed_count"`
					Limits  []struct{ Remaining int64 }
				}
			}
			must(t, json.Unmarshal([]byte(line), &asked))
			text, err := simulation.RunOne(t.Context(), []byte(line), simulation.Config{NewLimiter: freshLimiter})
			must(t, err)
			must(t, json.Unmarshal(text, &answer))
			var want []laneRow
			allowed, refused := int64(0), int64(0)
			for i, s := range answer.Steps {
				n := int64(1)
				if asked.Steps[i].Repeat != nil {
					n = *asked.Steps[i].Repeat
				}
				want = append(want, laneRow{s.At, s.Allowed, n - s.Allowed, s.Limits[0].Remaining})
				allowed, refused = allowed+s.Allowed, refused+n-s.Allowed
			}
			lane := byID(tree, asked.ID)
			if got := laneRows(t, lane); !slices.Equal(got, want) {
				t.Errorf("%v, %s:\n%v\nwant\n%v", pairs, asked.ID, got, want)
			}
			legend := textIn(withClass(lane, "key-passed")[0]) + ", " + textIn(withClass(lane, "key-refused")[0])
			if !strings.HasPrefix(legend, fmt.Sprintf("%d allowed, %d denied", allowed, refused)) {
				t.Errorf("%v, %s: %s, want %d and %d", pairs, asked.ID, legend, allowed, refused)
			}
			single := !slices.ContainsFunc(want, func(r laneRow) bool { return r.allowed+r.refused > 1 })
			passed, hung := attr(withClass(lane, "lane-passed")[0], "d"), attr(withClass(lane, "lane-refused")[0], "d")
			if single && (strings.Count(passed, "M") != int(allowed) || strings.Count(hung, "M") != int(refused)) {
				t.Errorf("%v, %s: the picture has %q and %q for %d and %d", pairs, asked.ID, passed, hung, allowed, refused)
			}
		}
	}
}

// The page shows that a fixed window allows twice the quota at its edge, and a log does not.
func TestPlaygroundShowsTheFlawOfFixedWindows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tree := w.get("/playground", "viewer").tree(t)
	got := map[string]string{}
	for _, tr := range find(tree, "data-algorithm") {
		got[attr(tr, "data-algorithm")] = textIn(tr)
	}
	for algorithm, want := range map[string]string{
		"fixed_window": "Fixed window 20 of 10 20 0 0", "sliding_window_log": "Sliding window log 10 of 10 10 10 10",
	} {
		if text := got[algorithm]; strings.Join(strings.Fields(text), "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: %s, want %s", algorithm, text, want)
		}
	}
	if len(got) != 4 {
		t.Errorf("the lanes are %v", got)
	}
	for algorithm, want := range map[string]string{
		"fixed_window":       "Denies nothing. Allows 20 requests in the 1m from 50s: 2 times the quota of 10, because its count starts at zero at 1m.",
		"sliding_window_log": "Denies 10 of 20 requests, the first at 1m. Allows at most 10 requests in any 1m; the quota is 10. At the first denial it stores 10. The next request would pass when enough of them are 1m old, 50s later.",
	} {
		if text := textIn(withClass(byID(tree, algorithm), "lane-sentence")[0]); text != want {
			t.Errorf("%s: %s\nwant %s", algorithm, text, want)
		}
	}
}

// Input that a simulation rejects is an error at its field, and no simulation runs.
func TestPlaygroundBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for query, want := range map[string]string{
		"quota=-1": "quota", "quota=": "quota", "quota=1000000000001": "quota", "quota=1e3": "quota", "window=1": "window", "window=0s": "window", "window=400d": "window",
		"burst=0": "burst", "anchor=none": "anchor", "pattern=none": "pattern", "requests=0": "requests", "requests=100000": "requests", "every=x": "every", "seed=-1": "seed",
		"cost=-1": "cost", "cost=2147483648": "cost", "duration=forever": "duration", "duration=10s": "duration", "quota=10001": "quota",
		"pattern=steady&requests=5000&every=1s&duration=1m": "requests", "pattern=steady&requests=9000&every=1m&duration=1m": "requests", "pattern=bursts&requests=9000&every=1ms&duration=1d": "requests",
		"pattern=random&requests=9000&every=1ms&duration=366d": "requests", "pattern=ramp&requests=9000&every=1ms&duration=366d": "requests", "requests=9000": "requests",
		"pattern=own": "times", "pattern=own&times=1,x": "times", "pattern=own&times=-1": "times", "pattern=own&times=121": "times", "pattern=own&times=0x99999": "times", "pattern=own&times=1x0": "times",
		"quota=1&quota=2": "quota", "pattern=%ff": "pattern",
		"request=x": "request", "again=x": "again", "again=key&again_after=0": "again_after", "again_after=6s": "again_after", "request=reserve&finish=x": "finish",
		"request=reserve&ttl=999ms": "ttl", "request=reserve&ttl=25h": "ttl", "ttl=2m": "ttl", "request=reserve&extend_after=x": "extend_after", "finish=give_back": "finish",
		"request=reserve&real_cost=-1": "real_cost", "request=reserve&finish=give_back&real_cost=1": "real_cost", "request=reserve&finish_after=&real_cost=1": "real_cost",
		"request=reserve&reservation_expiry=x": "reservation_expiry", "request=reserve&hold=5s&algorithm=concurrency": "hold",
		"request=reserve&pattern=steady&requests=900&every=1m": "requests",
	} {
		page := w.get("/playground?"+query, "viewer")
		tree := page.tree(t)
		var faulty []string
		for _, n := range find(tree, "aria-invalid") {
			faulty = append(faulty, attr(n, "id"))
		}
		if page.Code != http.StatusUnprocessableEntity || !slices.Equal(faulty, []string{want}) || len(withClass(tree, "lane")) > 0 {
			t.Errorf("%s: %d, faulty %v, want %s", query, page.Code, faulty, want)
		}
	}
	if page := w.get("/playground?algorithm=none", "viewer"); page.Code != http.StatusUnprocessableEntity {
		t.Errorf("an algorithm that is not known: %d", page.Code)
	}
	if page := w.get("/playground?"+playing("pattern", "steady", "requests", "2500", "every", "1m", "duration", "1m", "algorithm", "token_bucket").Encode(), "viewer"); page.Code != http.StatusOK ||
		len(laneRows(t, byID(page.tree(t), "token_bucket"))) != 120 {
		t.Errorf("many requests: %d, and not 120 parts", page.Code)
	}
}

// Only visitors who may write plans get a link to a new plan.
func TestPlaygroundLeadsToAPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for by, may := range map[string]bool{"owner": true, "viewer": false, "acme-admin": false} {
		if led := strings.Contains(w.get("/playground", by).body, `href="/plans/new"`); led != may {
			t.Errorf("%s is led to a new plan: %v", by, led)
		}
	}
}

// Every input is shown as text, and never as HTML.
func TestPlaygroundOfHostileValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := ""
	for n, payload := range append([]string{"plain"}, payloads...) {
		q := url.Values{"algorithm": {"gcra"}}
		for _, name := range []string{"quota", "window", "burst", "anchor", "pattern", "requests", "every", "seed", "cost", "duration", "times", "request", "ttl", "real_cost", "again", "again_after"} {
			q.Set(name, payload)
		}
		page := w.get("/playground?"+q.Encode(), "viewer")
		tree := page.tree(t)
		strict(t, "playground", tree)
		if got := shape(tree); n == 0 {
			want = got
		} else if got != want {
			t.Errorf("%q:\n%s\nwant\n%s", payload, got, want)
		}
	}
}
