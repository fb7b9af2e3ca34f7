package playground

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/simulation"
)

// playedAs plays a page of the playground for one algorithm and returns the sentence about it.
func playedAs(t *testing.T, a enforcement.Algorithm, pairs ...string) (p *played, sentence string) {
	t.Helper()
	g := readPlayForm(playing(append(pairs, "algorithm", a.String(), "pattern", "own")...))
	if err := g.faults.Err(); err != nil {
		t.Fatalf("%v: %v", pairs, err)
	}
	w := &pages{cfg: Config{Simulate: func(ctx context.Context, scenario []byte) ([]byte, error) {
		return simulation.RunOne(ctx, scenario, simulation.Config{
			NewLimiter: func(now func() int64) (enforcement.Limiter, func(), error) {
				return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
			},
		})
	}}}
	p, err := w.play(t.Context(), g, a)
	if err != nil {
		t.Fatalf("%v: %v", pairs, err)
	}
	return p, p.lane(g).Sentence
}

// A request that is sent again after its key or its id has been forgotten is charged twice, and the sentence says why.
func TestWhyRequestsAreChargedTwice(t *testing.T) {
	t.Parallel()
	fixed := enforcement.FixedWindow
	for name, c := range map[string]struct {
		pairs []string
		want  string
	}{
		"without a key": {[]string{"times", "0", "duration", "30m", "again", "no_key"}, "charged twice, because they were sent again without a key: 1."},
		"with a key":    {[]string{"times", "0", "duration", "30m", "again", "key"}, "Repetitions that got the first answer and charged nothing: 1."},
		"with a key, late": {
			[]string{"times", "0", "duration", "30m", "again", "key", "again_after", "11m"},
			"charged twice, because a key is known for 10m: 1.",
		},
		"with an id, late": {
			[]string{"times", "0", "duration", "30m", "again", "key", "again_after", "15m", "request", "reserve", "ttl", "10s"},
			"charged twice, because an id is known until 10m after the end of its reservation: 1.",
		},
	} {
		if _, got := playedAs(t, fixed, c.pairs...); !strings.Contains(got, c.want) || strings.Count(got, "charged") != 1 {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The units of a reservation are those that it stays charged after its end: also if its window has ended or its bucket
// has refilled, so that the end gives less back.
func TestUnitsOfReservationsAreThoseCharged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		algorithm enforcement.Algorithm
		pairs     []string
		units     int64
		answer    string // to the last call
		want      string
	}{
		"a bucket that has refilled": {
			enforcement.TokenBucket,
			[]string{"times", "0 60 60", "duration", "3m", "request", "reserve", "cost", "10", "ttl", "2m", "finish", "give_back", "finish_after", "60s"},
			20, "Given back; stays charged with 10", "of the 20 units that pass, it gained 10",
		},
		"a bucket that has not refilled": {
			enforcement.TokenBucket,
			[]string{"times", "0", "duration", "3m", "request", "reserve", "cost", "10", "ttl", "2m", "finish", "give_back", "finish_after", "1ms"},
			0, "Given back", "",
		},
		"a window that has ended": {
			enforcement.FixedWindow,
			[]string{"times", "50 70", "duration", "3m", "request", "reserve", "cost", "10", "ttl", "2m", "finish_after", "20s", "real_cost", "2", "anchor", "clock"},
			12, "Settled with 2", "12 units in the 1m from 50s",
		},
		"places": {
			enforcement.Concurrency,
			[]string{"times", "0 20", "duration", "5m", "request", "reserve", "cost", "5", "finish_after", "30s", "ttl", "2m", "real_cost", "1"},
			10, "Settled with 1", "at most 10 units",
		},
	} {
		p, sentence := playedAs(t, c.algorithm, c.pairs...)
		last := p.calls[len(p.calls)-1].Answer
		if got := p.units(p.form); got != c.units || last != c.answer || !strings.Contains(sentence, c.want) {
			t.Errorf("%s: %d units, %q, %s; want %d, %q, %s", name, got, last, sentence, c.units, c.answer, c.want)
		}
	}
}
