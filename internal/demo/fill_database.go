package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// seed is the seed of the random generator for synthetic users and their requests. Therefore every
// demo has the same users and requests.
const seed = 20_250_301

// A Node has the parts of the serving process that Fill uses.
type Node struct {
	// Snapshot returns the current snapshot. Refresh loads the latest revision into the snapshot.
	Snapshot func() *snapshot.Snapshot
	Refresh  func(context.Context) error
	// NewLimiter creates a limiter without counters. Fill uses it to decide the requests of the
	// history. now is the clock of this limiter, in microseconds since the epoch.
	NewLimiter func(now func() int64) enforcement.Limiter
	// Limiter is the limiter of live checks. At the end of the history, Fill charges this limiter
	// with the usage of windows of an hour and more. Default: none; these windows then start
	// unused.
	Limiter enforcement.Limiter
}

// Fill creates the demo in an empty database: plans, tenants, overrides, lists and blocks, and
// a history of a week. It returns an API key of one tenant.
//
// If the database already has the demo, Fill only adds the counts that are missing since the
// newest count, at most those of the last week, and returns no key. If the database has other
// data, the error is that of Check.
func (s *Service) Fill(ctx context.Context, n Node) (Key, error) {
	holder := uuid.NewString()
	if err := s.await(ctx, fillLease, holder); err != nil {
		return Key{}, err
	}
	defer s.drop(ctx, fillLease, holder)
	var taken atomic.Int64
	taken.Store(time.Now().Unix())
	f := filling{Service: s, node: n, renew: func(ctx context.Context) error {
		if now, before := time.Now().Unix(), taken.Load(); now < before+int64(leaseLife/time.Second)/5 || !taken.CompareAndSwap(before, now) {
			return nil
		}
		_, err := s.store.TakeLease(ctx, fillLease, holder, leaseLife)
		return err
	}}
	if err := Check(ctx, s.store); err != nil {
		return Key{}, err
	}
	i, err := s.Present(ctx)
	switch {
	case err != nil:
	case i.Present:
		err = f.fillGap(ctx, i)
	default:
		err = f.make(ctx)
	}
	return f.key, err
}

// A Key is an API key of a demo tenant. Both fields are "" if Fill created none.
type Key struct{ Tenant, Token string }

// A filling has the state of one call of Fill.
type filling struct {
	*Service
	node  Node
	renew func(context.Context) error // extends the lease
	key   Key
}

// make creates the plans, the tenants and the history. Info.Making is set until the plans and
// tenants exist.
func (f *filling) make(ctx context.Context) error {
	i := Info{MadeAt: f.now().UTC().Truncate(time.Second), Making: true}
	if err := f.note(ctx, i, "demo.begin"); err != nil {
		return err
	}
	stages, err := f.furnish(ctx, &i)
	if err != nil {
		return err
	}
	i.Making = false
	if err := f.note(ctx, i, "demo.make"); err != nil {
		return err
	}
	// Before the boundary, the first versions of the plans decide, without overrides and lists.
	// Blocks exist only in the last fiftieth of the history.
	end := f.now().Truncate(time.Second)
	boundary := f.boundary(i.MadeAt)
	return f.write(ctx, end.Add(-f.history), end, func(at time.Time) map[string]*enforcement.Subject {
		switch age := end.Sub(at); {
		case at.Before(boundary):
			return stages[0]
		case age > f.history/50:
			return stages[1]
		}
		return stages[2]
	})
}

// furnish creates the plans, the tenants and the exceptions. It returns the compiled tenants for
// three stages of the history. In the first stage, the tenants have the first versions of the
// plans. In the second stage, they have the second versions, lists and overrides. In the third
// stage, they have blocks too.
//
// The plans and tenants get creation times before the history. The second versions get a
// publication time shortly before the boundary, at which the counts by minute start. Therefore the
// published versions have decided all requests that are counted by minute.
func (f *filling) furnish(ctx context.Context, i *Info) (stages [3]map[string]*enforcement.Subject, err error) {
	began := audit.Dated(ctx, i.MadeAt.Add(-f.history-time.Hour))
	for k, draft := range samplePlans(1) {
		if err := f.makePlan(began, planSlugs[k], draft); err != nil {
			return stages, fmt.Errorf("make plan %s: %w", planSlugs[k], err)
		}
	}
	samples := sampleTenants(f.now())
	for _, t := range samples {
		made, err := f.makeTenant(began, t)
		if err != nil {
			return stages, fmt.Errorf("make tenant %s: %w", t.slug, err)
		}
		i.Tenants = append(i.Tenants, made)
	}
	if stages[0], err = f.subjects(ctx, *i); err != nil {
		return stages, err
	}
	if err := f.revise(ctx, f.boundary(i.MadeAt)); err != nil {
		return stages, err
	}
	for _, t := range samples {
		if err := f.addExceptions(ctx, t); err != nil {
			return stages, fmt.Errorf("add overrides and lists of tenant %s: %w", t.slug, err)
		}
	}
	if stages[1], err = f.subjects(ctx, *i); err != nil {
		return stages, err
	}
	for _, t := range samples {
		for _, b := range t.blocks {
			if _, err := f.exceptions.CreateBlock(ctx, t.slug, b); err != nil {
				return stages, fmt.Errorf("block a key of tenant %s: %w", t.slug, err)
			}
		}
	}
	stages[2], err = f.subjects(ctx, *i)
	return stages, err
}

func (s *Service) makePlan(ctx context.Context, slug string, draft plans.Document) error {
	p, err := s.plans.CreatePlan(ctx, slug, draft)
	if err == nil {
		_, _, err = s.plans.Publish(ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
	}
	return err
}

func (f *filling) makeTenant(ctx context.Context, t sampleTenant) (Made, error) {
	made, err := f.tenants.CreateTenant(ctx, t.slug, t.document)
	if err != nil {
		return Made{}, err
	}
	key := tenants.NewKey{Name: "gateway (demo)", Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead}}
	_, token, err := f.tenants.CreateKey(ctx, made.ID, key)
	if t.slug == tenantCobalt {
		f.key = Key{Tenant: t.slug, Token: token}
	}
	return Made{ID: made.ID, Slug: made.Slug, Number: made.Number}, err
}

// settled is the time from the publication of the second versions to the boundary. In a real
// installation, every node uses a new version after this time.
const settled = time.Minute

// revise publishes the second version of each sample plan. The publication time is earlier than
// the boundary by settled. One plan then also gets a draft that is not published.
func (s *Service) revise(ctx context.Context, boundary time.Time) error {
	then := audit.Dated(ctx, boundary.Add(-settled))
	for k, document := range samplePlans(2) {
		p, err := s.plans.Plan(ctx, planSlugs[k])
		if err == nil {
			p, err = s.plans.SaveDraft(then, p.ID, document, p.DraftRevision)
		}
		if err == nil {
			p, _, err = s.plans.Publish(then, p.ID, plans.Publish{IfRevision: p.DraftRevision})
		}
		if err == nil && p.Slug == planPro {
			_, err = s.plans.SaveDraft(ctx, p.ID, proDraft(), p.DraftRevision)
		}
		if err != nil {
			return fmt.Errorf("publish plan %s again: %w", planSlugs[k], err)
		}
	}
	return nil
}

// boundary returns the time in the history after which requests are counted by minute. end is the
// end of the history.
func (s *Service) boundary(end time.Time) time.Time {
	return end.Add(-min(byTheMinute, s.history/4)).Truncate(time.Hour)
}

func (s *Service) addExceptions(ctx context.Context, t sampleTenant) error {
	for _, o := range t.overrides {
		if _, err := s.exceptions.CreateOverride(ctx, t.slug, o); err != nil {
			return err
		}
	}
	for _, e := range t.entries {
		if _, err := s.exceptions.CreateEntry(ctx, t.slug, e); err != nil {
			return err
		}
	}
	return nil
}

// subjects returns the compiled tenants of the demo from the newest snapshot, by slug.
func (f *filling) subjects(ctx context.Context, i Info) (map[string]*enforcement.Subject, error) {
	if err := f.node.Refresh(ctx); err != nil {
		return nil, err
	}
	return i.subjects(f.node.Snapshot()), nil
}

func (i Info) subjects(now *snapshot.Snapshot) map[string]*enforcement.Subject {
	found := make(map[string]*enforcement.Subject, len(i.Tenants))
	for _, made := range i.Tenants {
		if s, ok := now.Subject(made.ID); ok {
			found[made.Slug] = s
		}
	}
	return found
}

// fillGap adds the counts that are missing since the newest count.
func (f *filling) fillGap(ctx context.Context, i Info) error {
	end := f.now().Truncate(time.Second)
	from, err := f.counted(ctx, i, end)
	if err != nil || !from.Before(end) {
		return err
	}
	now, err := f.subjects(ctx, i)
	if err != nil {
		return err
	}
	return f.write(ctx, from, end, func(time.Time) map[string]*enforcement.Subject { return now })
}

// counted returns the end of the newest minute or hour for which the demo has counts. If the newest
// count is older than the length of a history, counted returns now minus this length.
func (f *filling) counted(ctx context.Context, i Info, now time.Time) (time.Time, error) {
	last := now.Add(-f.history)
	for _, step := range []metrics.Step{metrics.Hour, metrics.Minute} {
		for _, number := range i.numbers() {
			rows, err := f.store.Counts(ctx, metrics.CountQuery{
				Step: step, From: now.Add(-f.history).Truncate(step.Duration()).Unix(), To: now.Add(time.Hour).Truncate(step.Duration()).Unix(),
				Tenant: number, Kind: metrics.KindTotal, Limit: 1,
			})
			if err != nil {
				return last, err
			}
			if len(rows) > 0 {
				last = slices.MaxFunc([]time.Time{last, time.Unix(rows[0].At, 0).Add(step.Duration())}, time.Time.Compare)
			}
		}
	}
	return last, nil
}

// write writes the history of [from, end). It writes the part before the boundary and the part
// after the boundary at the same time. The first part spends most of its time on decisions, the
// second part on writing counts. Each part starts without counters.
func (f *filling) write(ctx context.Context, from, end time.Time, who func(time.Time) map[string]*enforcement.Subject) error {
	began := time.Now()
	f.log.Info("writing the demo's history; a week takes some seconds", "from", from.UTC().Format(time.RFC3339))
	parts, ctx := errgroup.WithContext(ctx)
	middle := f.boundary(end)
	var told []*history
	for _, part := range [][2]time.Time{{from, middle}, {middle, end}} {
		if part[0].Before(from) {
			part[0] = from
		}
		if !part[0].Before(part[1]) {
			continue
		}
		h := newHistory(newPopulation(seed), f.node.NewLimiter, f.store, middle, end, f.observe)
		told = append(told, h)
		parts.Go(func() error {
			err := h.tell(ctx, part[0], part[1], who, f.renew)
			return errors.Join(err, h.end())
		})
	}
	if err := parts.Wait(); err != nil {
		return fmt.Errorf("write the demo's history: %w", err)
	}
	// A minute before the boundary contains the counts of a whole hour, so previews must not read
	// it.
	roller := metrics.NewRoller(f.store, metrics.RollerConfig{Now: func() time.Time { return end }, Minutes: end.Sub(middle), Logger: f.log})
	if err := roller.Turn(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("roll up the demo's history: %w", err)
	}
	f.carry(context.WithoutCancel(ctx), told, who(end))
	f.log.Info("the demo's history is written", "from", from.UTC().Format(time.RFC3339), "took",
		time.Since(began).Round(time.Millisecond).String())
	return nil
}

// carry charges the live limiter with what the history used of long windows. It logs an error
// instead of returning it, so that the demo starts even if the limiter is unavailable.
func (f *filling) carry(ctx context.Context, told []*history, subjects map[string]*enforcement.Subject) {
	if f.node.Limiter == nil {
		return
	}
	all := make(map[enforcement.Key]used)
	for _, h := range told {
		h.usage(ctx, subjects, all)
	}
	if err := carry(ctx, f.node.Limiter, all); err != nil {
		f.log.Warn("the usage in the demo's history was not charged to the live limiter", "error", err)
	}
}
