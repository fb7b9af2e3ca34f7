package alerts

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Bounds of rules that watch each tenant.
const (
	// turnSize is the maximum number of tenants that one evaluation measures. If there are more,
	// each evaluation measures the next part of them.
	turnSize = 200
	// maxTenantStates is the maximum number of tenants of one rule whose phase is not OK.
	maxTenantStates = 1000
)

// nextTurn returns the slugs of the next tenants to measure, at most turnSize of them. They come
// after the tenants of the previous call in the order of slugs. The first tenant follows the last
// one.
func (e *Evaluator) nextTurn() []string {
	if e.cfg.Figures.Tenants == nil {
		return nil
	}
	all := e.cfg.Figures.Tenants()
	from, found := slices.BinarySearch(all, e.last)
	if found {
		from++
	}
	turn := all[from:min(from+turnSize, len(all))]
	turn = append(slices.Clone(turn), all[:min(from, turnSize-len(turn))]...)
	if len(turn) > 0 {
		e.last = turn[len(turn)-1]
	}
	return turn
}

// ofTenant returns the form of a rule that watches each tenant for one of these tenants.
func ofTenant(r *Rule, slug string) Rule {
	one := *r
	one.Tenant = slug
	return one
}

// stepEach does the work of step for a rule that watches each tenant. own is the state of the rule
// itself: either from the time when it did not watch each tenant, or the summary of the last
// evaluation. each has the states of the tenants.
func (e *Evaluator) stepEach(
	ctx context.Context, m *measurement, r *Rule, own State, each map[string]State, a *Advance,
) (State, error) {
	all := State{At: m.now, Tenants: make(map[string]State, len(each))}
	if r.Metric.BeginsBelow() {
		all.Value = maxHours // maxHours is the best figure of ExhaustedIn; for other metrics, the best figure is 0
	}
	if own.Incident != "" {
		if err := e.end(ctx, m, *r, own, a); err != nil {
			return all, err
		}
	}
	turn := m.turn()
	for slug, before := range each {
		if _, exists := m.Tenant(slug); exists && !r.Disabled {
			if !slices.Contains(turn, slug) {
				all.Tenants[slug] = before
			}
			continue
		}
		if err := e.end(ctx, m, ofTenant(r, slug), before, a); err != nil {
			return all, err
		}
	}
	if !r.Disabled {
		if err := e.stepTurn(ctx, m, r, turn, each, &all, a); err != nil {
			return all, err
		}
	}
	all.summarize(&own)
	return all, nil
}

// stepTurn measures the tenants of one turn (see nextTurn). It adds their states to all.
func (e *Evaluator) stepTurn(
	ctx context.Context, m *measurement, r *Rule, turn []string, each map[string]State, all *State, a *Advance,
) error {
	for _, slug := range turn {
		before, known := each[slug]
		if !known && len(all.Tenants) >= maxTenantStates {
			all.Err = fmt.Sprintf("%d tenants have reached the threshold, so no more are measured", maxTenantStates)
			continue
		}
		one := ofTenant(r, slug)
		s, err := e.step(ctx, m, &one, before, a)
		switch {
		case err != nil:
			return err
		case s.Err != "":
			all.Err = "tenant " + slug + ": " + s.Err
		case r.worse(all.Value, s.Value) != all.Value && !s.At.IsZero():
			all.Value, all.Detail = s.Value, strings.TrimSuffix("Tenant "+slug+": "+s.Detail, ": ")
		}
		if s.Phase == Pending || s.Phase == Firing {
			all.Tenants[slug] = s
		}
	}
	return nil
}

// summarize sets Phase and Since from the states of the tenants. before is the last summary.
func (s *State) summarize(before *State) {
	s.Phase, s.Since = OK, s.At
	for _, t := range s.Tenants {
		if t.Phase == Firing || s.Phase == OK {
			s.Phase = t.Phase
		}
	}
	if s.Phase == before.Phase && !before.Since.IsZero() {
		s.Since = before.Since
	}
}
