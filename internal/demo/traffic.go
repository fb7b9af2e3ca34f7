package demo

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/internal/snapshot"
)

// TrafficConfig configures a Traffic. Decider, Snapshot and Flush are required.
type TrafficConfig struct {
	// Decider decides the requests. It must be the Decider of the node's own checks, so that demo
	// requests are limited and counted like other requests.
	Decider enforcement.Decider
	// Snapshot returns the current snapshot. Traffic calls it for each request, so that an edit
	// of a sample plan has an effect at once.
	Snapshot func() *snapshot.Snapshot
	// Flush writes all counts to the database.
	Flush func(context.Context) error
	// Logger logs when traffic starts and when it fails. Default: no logging.
	Logger *slog.Logger
	// Now returns the current time, from which the synthetic requests are generated. Default:
	// time.Now.
	Now func() time.Time
	// Tick is the interval at which due requests are sent. Default: 50 ms.
	Tick time.Duration
}

// A Traffic sends the requests of the synthetic users while the server runs. It sends about ten
// requests per second on average, more during the day, and at most maxPerSecond. If there are
// several nodes, only the node that holds the lease sends requests.
type Traffic struct {
	service  *Service
	cfg      TrafficConfig
	users    *population
	holder   string
	decision enforcement.Decision
}

const (
	// maxPerSecond is the maximum number of requests in one second. Further generated requests
	// are dropped.
	maxPerSecond = 60
	// longestPause is the maximum delay of a request. A request with a longer delay is skipped.
	longestPause = 2 * time.Second
)

// NewTraffic returns a Traffic. Its method Run sends the requests.
func (s *Service) NewTraffic(c TrafficConfig) *Traffic {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Tick = cmp.Or(c.Tick, 50*time.Millisecond)
	return &Traffic{service: s, cfg: c, users: newPopulation(seed), holder: uuid.NewString()}
}

// Run sends requests until ctx ends. While the database has no demo tenant, or another process
// holds the lease, it waits.
func (t *Traffic) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		info, err := t.service.Present(ctx)
		switch {
		case err != nil:
			t.cfg.Logger.Warn("the demo's traffic waits for the database", "error", err)
		case len(info.subjects(t.cfg.Snapshot())) > 0:
			t.turn(ctx, info)
		}
		_ = retry.Wait(ctx, time.Second)
	}
	return nil
}

// turn sends requests while this process holds the lease and a demo tenant exists. Before it
// drops the lease, it writes all counts to the database.
func (t *Traffic) turn(ctx context.Context, info Info) {
	mine, err := t.service.store.TakeLease(ctx, trafficLease, t.holder, leaseLife)
	if err != nil || !mine {
		return
	}
	defer t.service.drop(ctx, trafficLease, t.holder)
	t.cfg.Logger.Info("sending the demo's traffic", "tenants", len(info.Tenants))
	defer func() {
		if err := t.cfg.Flush(context.WithoutCancel(ctx)); err != nil {
			t.cfg.Logger.Warn("the last counts of the demo's traffic could not be written", "error", err)
		}
	}()
	tick := time.NewTicker(t.cfg.Tick)
	defer tick.Stop()
	now := t.cfg.Now()
	// Made is the time up to which requests are generated; taken is the time at which the lease
	// was last acquired.
	made, taken := now.Truncate(time.Second), now
	var events []event
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now = t.cfg.Now()
		if now.Sub(taken) > leaseLife/3 || now.Before(taken) {
			mine, err := t.service.store.TakeLease(ctx, trafficLease, t.holder, leaseLife)
			if err != nil || !mine {
				return
			}
			taken = now
		}
		if behind := now.Sub(made); behind > longestPause || behind < -longestPause {
			// the clock was changed, or the machine was suspended: skip the missed time
			made, events = now.Truncate(time.Second), events[:0]
		}
		for ; !made.After(now); made = made.Add(time.Second) {
			from := len(events)
			events = t.users.second(events, made, 0)
			events = events[:min(len(events), from+maxPerSecond)]
		}
		rest, any := t.ask(ctx, info, events, now.UnixMicro())
		if !any {
			return
		}
		events = events[:copy(events, rest)]
	}
}

// ask sends the events that are due at now, in microseconds since the epoch, and returns the
// other events. any reports whether a demo tenant exists.
func (t *Traffic) ask(ctx context.Context, info Info, events []event, now int64) (rest []event, any bool) {
	subjects := info.subjects(t.cfg.Snapshot())
	for len(events) > 0 && events[0].at <= now && ctx.Err() == nil {
		e := events[0]
		events = events[1:]
		if s := subjects[t.users.crowds[e.crowd].tenant]; s != nil {
			t.cfg.Decider.Decide(ctx, s, &e.check, &t.decision)
		}
	}
	return events, len(subjects) > 0
}
