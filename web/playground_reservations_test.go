package web_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/internal/simulation"
)

// callRows returns the calls in the table of one algorithm, each as one text.
func callRows(lane *html.Node) (rows []string) {
	for _, tr := range find(lane, "data-call") {
		var cells []string
		for n := range tr.Descendants() {
			if n.Data == "th" || n.Data == "td" {
				cells = append(cells, textIn(n))
			}
		}
		rows = append(rows, strings.TrimRight(strings.Join(cells, " | "), "| "))
	}
	return rows
}

// Requests can make reservations, which are settled, extended, or given back, or end by their time, and
// can be sent again. The page needs no script.
func TestPlaygroundOfReservationsAndRepetitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		query    []string
		rows     []string
		sentence string // a part of the sentence
		legend   string
	}{
		"settled": {
			[]string{"request", "reserve", "cost", "5", "real_cost", "2", "times", "0 1 2 15"},
			[]string{
				"0s | Reservation 1 | Allowed | 5", "1s | Reservation 2 | Allowed | 0", "2s | Reservation 3 | Denied | 0 | 58s", "10s | Settle 1 | Settled with 2 | 3",
				"11s | Settle 2 | Settled with 2 | 6", "15s | Reservation 4 | Allowed | 1", "25s | Settle 4 | Settled with 2 | 4",
			},
			"Denies 1 of 4 requests, the first at 2s. Reservations: 3, 3 settled. Allows at most 6 units in any 1m; the quota is 10.", "3 allowed1 denied",
		},
		"settled above the estimate": {
			[]string{"request", "reserve", "cost", "5", "real_cost", "12", "times", "0 11"},
			[]string{"0s | Reservation 1 | Allowed | 5", "10s | Settle 1 | Settled with 12 | 0", "11s | Reservation 2 | Denied | 0 | 49s"},
			"Allows 12 units in the 1m from 0s: 1.2 times the quota of 10", "1 allowed1 denied",
		},
		"given back": {
			[]string{"request", "reserve", "cost", "10", "finish", "give_back", "times", "0 10 11"},
			[]string{"0s | Reservation 1 | Allowed | 0", "10s | Give back 1 | Given back | 10", "10s | Reservation 2 | Allowed | 0", "11s | Reservation 3 | Denied | 0 | 49s", "20s | Give back 2 | Given back | 10"},
			"Reservations: 2, 2 given back.", "2 allowed1 denied",
		},
		"ended by their time": {
			[]string{"request", "reserve", "cost", "5", "ttl", "5s", "finish_after", "", "reservation_expiry", "refund", "times", "0x2 4.999 5 58"},
			[]string{"0s | Reservation 1 | Allowed | 5", "0s | Reservation 2 | Allowed | 0", "4.999s | Reservation 3 | Denied | 0 | 55.001s", "5s | Reservation 4 | Allowed | 5", "58s | Reservation 5 | Allowed | 5"},
			"Reservations: 4, 3 ended by their time, 1 open at the end. Allows at most 5 units", "4 allowed1 denied",
		},
		"extended, and too late": {
			[]string{"request", "reserve", "ttl", "5s", "extend_after", "3s", "finish_after", "9s", "times", "0"},
			[]string{"0s | Reservation 1 | Allowed | 9", "3s | Extend 1 | Extended to 8s | 9", "9s | Settle 1 | Too late | 9"},
			"Reservations: 1, 1 ended by their time. Allows at most 1 requests", "1 allowed0 denied",
		},
		"with a key": {
			[]string{"again", "key", "again_after", "1s", "cost", "4", "times", "0x2 1 5"},
			[]string{
				"0s | Request 1 | Allowed | 6", "0s | Request 2 | Allowed | 2", "1s | Request 1, again | The first answer again", "1s | Request 2, again | The first answer again",
				"1s | Request 3 | Denied | 2 | 59s", "2s | Request 3, again | Denied | 2 | 58s", "5s | Request 4 | Denied | 2 | 55s", "6s | Request 4, again | Denied | 2 | 54s",
			},
			"Repetitions that got the first answer and charged nothing: 2.", "2 allowed4 denied (up to 4 in a row, from 1s)2 repeated",
		},
		"without a key": {
			[]string{"again", "no_key", "again_after", "1s", "cost", "2", "times", "0x2 3"},
			[]string{"0s | Request 1 | Allowed | 8", "0s | Request 2 | Allowed | 6", "1s | Request 1, again | Allowed | 4", "1s | Request 2, again | Allowed | 2", "3s | Request 3 | Allowed | 0", "4s | Request 3, again | Denied | 0 | 56s"},
			"Requests that were charged twice, because they were sent again without a key: 2.", "5 allowed1 denied",
		},
		"a reservation again": {
			[]string{"request", "reserve", "again", "key", "cost", "6", "real_cost", "1", "times", "0 1"},
			[]string{
				"0s | Reservation 1 | Allowed | 4", "1s | Reservation 2 | Denied | 4 | 59s", "5s | Reservation 1, again | The first answer again", "6s | Reservation 2, again | Denied | 4 | 54s",
				"10s | Settle 1 | Settled with 1 | 9",
			},
			"Reservations: 1, 1 settled. Repetitions that got the first answer and charged nothing: 1.", "1 allowed2 denied (up to 2 in a row, from 1s)1 repeated",
		},
		"a place": {
			[]string{"request", "reserve", "algorithm", "concurrency", "quota", "1", "finish_after", "2s", "times", "0 1 2"},
			[]string{"0s | Reservation 1 | Allowed | 0", "1s | Reservation 2 | Denied | 0 | 59s", "2s | Settle 1 | Settled with 1 | 1", "2s | Reservation 3 | Allowed | 0", "4s | Settle 3 | Settled with 1 | 1"},
			"Reservations: 2, 2 settled.", "2 allowed1 denied",
		},
	} {
		query := playing(append([]string{"pattern", "own", "duration", "1m"}, c.query...)...)
		if !query.Has("algorithm") {
			query.Set("algorithm", "fixed_window")
		}
		page := w.get("/playground?"+query.Encode(), "acme-viewer")
		if page.Code != http.StatusOK {
			t.Errorf("%s: %d %v", name, page.Code, find(page.tree(t), "aria-invalid"))
			continue
		}
		lane := byID(page.tree(t), query.Get("algorithm"))
		if rows := callRows(lane); !slices.Equal(rows, c.rows) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(rows, "\n"), strings.Join(c.rows, "\n"))
		}
		if text := textIn(withClass(lane, "lane-sentence")[0]); !strings.Contains(text, c.sentence) {
			t.Errorf("%s: %s\nwant %s", name, text, c.sentence)
		}
		if text := textIn(withClass(lane, "lane-legend")[0]); !strings.HasPrefix(text, c.legend) {
			t.Errorf("%s: %s\nwant %s", name, text, c.legend)
		}
	}
}

// The scenarios of the page play the same calls: the simulation of each has the units of the table.
func TestPlayedCallsAreTheSimulations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	algorithms := []string{"fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket", "gcra", "leaky_bucket", "concurrency"}
	for _, pairs := range [][]string{
		{"request", "reserve", "requests", "25", "real_cost", "1", "cost", "3"},
		{"request", "reserve", "requests", "25", "finish", "give_back", "extend_after", "2s", "again", "no_key"},
		{"request", "reserve", "requests", "25", "ttl", "7s", "finish_after", "8s", "reservation_expiry", "refund", "mode", "degrade"},
		{"requests", "25", "again", "key", "mode", "delay"},
		{"requests", "25", "again", "no_key", "cost", "0"},
	} {
		query := playing(append([]string{"pattern", "random", "duration", "2m", "window", "30s"}, pairs...)...)
		for _, a := range algorithms {
			query.Add("algorithm", a)
		}
		page := w.get("/playground?"+query.Encode(), "viewer")
		if page.Code != http.StatusOK {
			t.Fatalf("%v: %d", pairs, page.Code)
		}
		tree := page.tree(t)
		for line := range strings.Lines(w.get("/playground/scenarios?"+query.Encode(), "viewer").body) {
			var asked struct{ ID string }
			must(t, json.Unmarshal([]byte(line), &asked))
			text, err := simulation.RunOne(t.Context(), []byte(line), simulation.Config{NewLimiter: freshLimiter})
			must(t, err)
			var answer struct {
				Steps []struct {
					Allowed  bool
					Replayed bool
					Problem  string
					Limits   []struct{ Remaining int64 }
				}
			}
			must(t, json.Unmarshal(text, &answer))
			var want []int64
			for _, s := range answer.Steps {
				if !s.Replayed && !strings.Contains(s.Problem, "no such reservation") {
					want = append(want, s.Limits[0].Remaining)
				}
			}
			var got []int64
			for _, row := range callRows(byID(tree, asked.ID)) {
				if cells := strings.Split(row, " | "); len(cells) > 3 {
					got = append(got, whole(t, cells[3]))
				}
			}
			if !slices.Equal(got, want) || len(got) < 40 {
				t.Errorf("%v, %s: left %v\nwant %v", pairs, asked.ID, got, want)
			}
		}
	}
}

// The fields of reservations and repetitions are folded unless they differ from their defaults.
func TestPlaygroundFoldsTheFieldsOfCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for query, open := range map[string]bool{"": false, "requests=5": false, "request=reserve": true, "again=key": true, "ttl=x": true} {
		fields := withClass(w.get("/playground?"+query, "viewer").tree(t), "game-calls")
		if len(fields) != 1 || slices.ContainsFunc(fields[0].Attr, func(a html.Attribute) bool { return a.Key == "open" }) != open {
			t.Errorf("%q: the fields are open: %t", query, !open)
		}
	}
}
