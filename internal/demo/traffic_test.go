package demo

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
)

// A noted decider records its decisions in a ledger.
type noted struct {
	enforcement.Decider
	ledger *ledger
	n      atomic.Int64
}

func (n *noted) Decide(ctx context.Context, s *enforcement.Subject, c *enforcement.Check, d *enforcement.Decision) {
	n.Decider.Decide(ctx, s, c, d)
	n.ledger.note(d)
	n.n.Add(1)
}

// serving is the part of a node that decides and counts.
func (h *house) serving() (*noted, *metrics.Flusher) {
	recorder := metrics.NewRecorder(metrics.Config{Node: "n"})
	engine := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{Recorder: recorder})
	return &noted{Decider: engine, ledger: newLedger()}, metrics.NewFlusher(recorder, h.store, metrics.FlusherConfig{})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		tick := time.NewTimer(5 * time.Millisecond)
		<-tick.C
	}
}

// Traffic is decided by the node's own engine, counted, and written when the
// traffic ends; a second node sends nothing meanwhile. An edited plan applies to
// the next check.
func TestTraffic(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	decided := newLedger() // of the history and of the traffic
	s := h.demo(time.Now(), 1, decided)
	_, err := s.Fill(h.ctx, h.node())
	h.must(err)
	info, err := s.Present(h.ctx)
	h.must(err)
	watching, stopWatching := context.WithCancel(h.ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); _ = h.watcher.Run(watching) }()
	t.Cleanup(func() { stopWatching(); <-watched })

	decider, flusher := h.serving()
	decider.ledger = decided
	run := func(ctx context.Context) chan error {
		ended := make(chan error, 1)
		traffic := s.NewTraffic(TrafficConfig{Decider: decider, Snapshot: h.watcher.Current, Flush: flusher.Flush, Tick: time.Millisecond})
		go func() { ended <- traffic.Run(ctx) }()
		return ended
	}
	ctx, stop := context.WithCancel(h.ctx)
	ended := run(ctx)
	eventually(t, "there is traffic", func() bool { return decider.n.Load() >= 10 })
	idle := &noted{Decider: decider.Decider, ledger: newLedger()}
	second := s.NewTraffic(TrafficConfig{Decider: idle, Snapshot: h.watcher.Current, Flush: flusher.Flush})
	second.turn(ctx, info)
	if n := idle.n.Load(); n > 0 {
		t.Errorf("a second node asks %d times", n)
	}
	stop()
	h.must(<-ended)
	for _, number := range append(info.numbers(), 0) {
		decided.compare(t, number, sums(h.rows(number)))
	}

	// Everything is refused now.
	for _, slug := range planSlugs {
		p, err := h.plans.Plan(h.ctx, slug)
		h.must(err)
		draft := p.Draft.Content()
		draft.Policies = []plans.Policy{{Slug: "nothing", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Window: time.Minute}}}}
		p, err = h.plans.SaveDraft(h.ctx, p.ID, plans.New(draft), p.DraftRevision)
		h.must(err)
		_, _, err = h.plans.Publish(h.ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
		h.must(err)
	}
	h.must(h.watcher.Refresh(h.ctx))
	strict, flusher := h.refusing()
	traffic := s.NewTraffic(TrafficConfig{Decider: strict, Snapshot: h.watcher.Current, Flush: flusher.Flush, Tick: time.Millisecond})
	ended = make(chan error, 1)
	ctx, stop = context.WithCancel(h.ctx)
	defer stop()
	go func() { ended <- traffic.Run(ctx) }()
	eventually(t, "a check is denied", func() bool { return strict.refused.Load() >= 3 })

	stop()
	h.must(<-ended)
}

// A refusing decider counts the denials by limits.
type refusing struct {
	enforcement.Decider
	refused atomic.Int64
}

func (r *refusing) Decide(ctx context.Context, s *enforcement.Subject, c *enforcement.Check, d *enforcement.Decision) {
	r.Decider.Decide(ctx, s, c, d)
	if d.Reason == enforcement.ReasonCostExceedsQuota {
		r.refused.Add(1)
	}
}

func (h *house) refusing() (*refusing, *metrics.Flusher) {
	n, f := h.serving()
	return &refusing{Decider: n.Decider}, f
}

// The users are the same in every process, and for every split of a time range.
func TestWorldIsAFunctionOfTime(t *testing.T) {
	t.Parallel()
	a, b := newPopulation(seed), newPopulation(seed)
	from := time.Date(2026, 11, 21, 10, 4, 0, 0, time.UTC)
	var whole, pieces []event
	for i := range 240 {
		whole = a.second(whole, from.Add(time.Duration(i)*time.Second), 0)
	}
	for i := 239; i >= 0; i-- {
		pieces = append(b.second(nil, from.Add(time.Duration(i)*time.Second), 0), pieces...)
	}
	if len(whole) < 240 || !slices.EqualFunc(whole, pieces, func(x, y event) bool {
		return x.at == y.at && x.crowd == y.crowd && x.check.Path == y.check.Path && slices.Equal(x.check.Attributes, y.check.Attributes)
	}) {
		t.Errorf("%d events and %d", len(whole), len(pieces))
	}
	if !slices.IsSortedFunc(whole, func(x, y event) int { return int(x.at - y.at) }) {
		t.Error("events are not in their order")
	}
	other := newPopulation(seed+10).second(nil, from, 0)
	if slices.EqualFunc(other, whole[:min(len(other), len(whole))], func(x, y event) bool { return x.at == y.at }) {
		t.Error("another seed makes the same users")
	}
	for _, e := range whole {
		for _, at := range e.check.Attributes {
			if at.Name == "ip" && at.Value != e.check.IP.String() {
				t.Errorf("an address that is not canonical: %s", at.Value)
			}
		}
		if path, err := enforcement.NormalizePath(e.check.Path); err != nil || path != e.check.Path {
			t.Errorf("path %s: %s, %v", e.check.Path, path, err)
		}
	}
}

// By day there is more to do than at night, and weekends differ.
func TestRhythm(t *testing.T) {
	t.Parallel()
	w := newPopulation(seed)
	monday := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	day := func(c *crowd, d int) (sum, least, most float64) {
		least = 1e9
		for hour := range 24 {
			f := c.rhythm(monday.Add(time.Duration(24*d+hour) * time.Hour))
			sum, least, most = sum+f, min(least, f), max(most, f)
		}
		return sum / 24, least, most
	}
	for i := range w.crowds {
		c := &w.crowds[i]
		mean, least, most := day(c, 2)
		if mean < 0.99 || mean > 1.01 || most < 3*least {
			t.Errorf("%s on a weekday: %.2f, from %.2f to %.2f", c.tenant, mean, least, most)
		}
	}
	if shop, _, _ := day(&w.crowds[1], 5); shop <= 1.1 {
		t.Errorf("the shop is quiet on a Saturday: %.2f", shop)
	}
	if office, _, _ := day(&w.crowds[0], 5); office >= 0.5 {
		t.Errorf("the office is busy on a Saturday: %.2f", office)
	}
}
