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

// TrafficConfig of a Traffic. All but Logger, Now and Tick is needed.
type TrafficConfig struct {
	// Decider is the node's own, so that its limits count and its recorder hears.
	Decider enforcement.Decider
	// Snapshot is the one in force: what is edited of the demo's plans holds from
	// the next call on.
	Snapshot func() *snapshot.Snapshot
	// Flush writes everything that was counted until now.
	Flush func(context.Context) error
	// Logger hears when traffic begins and ends. Default: silent.
	Logger *slog.Logger
	// Now is the clock by which users ask. Default time.Now.
	Now func() time.Time
	// Tick is how often it looks whether somebody asks. Default 50 ms.
	Tick time.Duration
}

// A Traffic is the synthetic users while the program runs: some ten calls a
// second, more by day, at most maxPerSecond, on one node of the fleet.
type Traffic struct {
	service  *Service
	cfg      TrafficConfig
	world    *world
	holder   string
	decision enforcement.Decision
}

const (
	// maxPerSecond bounds what is asked, whatever the rhythm says.
	maxPerSecond = 60
	// longestPause is how far it may lie behind before it lets calls go.
	longestPause = 2 * time.Second
)

// NewTraffic makes one. Run runs it.
func (s *Service) NewTraffic(c TrafficConfig) *Traffic {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Tick = cmp.Or(c.Tick, 50*time.Millisecond)
	return &Traffic{service: s, cfg: c, world: newWorld(seed), holder: uuid.NewString()}
}

// Run sends checks until ctx ends, as long as at least one demo tenant exists.
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

// turn asks as long as this process has the lease and the tenants are there.
// What it asked is in the database before it gives the lease back.
func (t *Traffic) turn(ctx context.Context, info Info) {
	mine, err := t.service.store.TakeLease(ctx, trafficLease, t.holder, leaseLife)
	if err != nil || !mine {
		return
	}
	defer t.service.drop(ctx, trafficLease, t.holder)
	t.cfg.Logger.Info("the demo's users ask", "tenants", len(info.Tenants))
	defer func() {
		if err := t.cfg.Flush(context.WithoutCancel(ctx)); err != nil {
			t.cfg.Logger.Warn("the demo's last counts are not written yet", "error", err)
		}
	}()
	tick := time.NewTicker(t.cfg.Tick)
	defer tick.Stop()
	now := t.cfg.Now()
	made, taken := now.Truncate(time.Second), now // up to where calls are made; when the lease was taken
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
			made, events = now.Truncate(time.Second), events[:0] // the clock was set, or the machine slept
		}
		for ; !made.After(now); made = made.Add(time.Second) {
			from := len(events)
			events = t.world.second(events, made, 0)
			events = events[:min(len(events), from+maxPerSecond)]
		}
		rest, any := t.ask(ctx, info, events, now.UnixMicro())
		if !any {
			return
		}
		events = events[:copy(events, rest)]
	}
}

// ask asks what is due, and gives the rest. any: a tenant is there.
func (t *Traffic) ask(ctx context.Context, info Info, events []event, now int64) (rest []event, any bool) {
	subjects := info.subjects(t.cfg.Snapshot())
	for len(events) > 0 && events[0].at <= now && ctx.Err() == nil {
		e := events[0]
		events = events[1:]
		if s := subjects[t.world.crowds[e.crowd].tenant]; s != nil {
			t.cfg.Decider.Decide(ctx, s, &e.check, &t.decision)
		}
	}
	return events, len(subjects) > 0
}
