package usage

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/snapshot"
)

const (
	// findSpan is the length of the time before now in whose rankings FindKeys searches.
	findSpan = 24 * time.Hour
	// findTenants is the maximum number of tenants whose counters FindKeys reads: those with the most requests.
	findTenants = 100
	// findCounters is the least length of a value for which FindKeys reads counters.
	findCounters = 3
)

// A FoundKey is a counted key that FindKeys has found.
type FoundKey struct {
	Tenant string // slug
	Policy string // slug
	Key    []enforcement.KeyPart
}

// FindKeys searches for counted keys by their values: of one tenant, or of all tenants if tenant
// is "". It returns at most most keys, those with the value text before those with text in a
// value. It searches the rankings of keys of the last day. For policies that count by one
// attribute, it also reads the counters that the value text has, of at most findTenants tenants.
// A limiter that does not answer is no error, because the rankings are then searched alone.
func (s *Service) FindKeys(ctx context.Context, tenant, text string, most int) ([]FoundKey, error) {
	world := s.cfg.Snapshot()
	if world == nil || s.cfg.Analytics == nil || text == "" {
		return nil, nil
	}
	now := s.cfg.Now().Truncate(time.Minute).Add(time.Minute)
	q := metrics.Query{From: now.Add(-findSpan), To: now, Limit: rankedKeys}
	var subjects []*enforcement.Subject
	if tenant != "" {
		subject, err := s.subject(tenant)
		if err != nil {
			return nil, err
		}
		q.Tenant, subjects = subject.Number, append(subjects, subject)
	}
	exact, partly, err := s.ranked(ctx, world, q, text)
	if err != nil {
		return nil, err
	}
	if tenant == "" && len(text) >= findCounters {
		q.Limit = findTenants
		ranking, err := s.cfg.Analytics.Tenants(ctx, q, metrics.ByRequests)
		if err != nil {
			return nil, err
		}
		for _, t := range ranking.Tenants {
			if subject, known := world.SubjectByNumber(t.Tenant); known {
				subjects = append(subjects, subject)
			}
		}
	}
	for _, subject := range subjects {
		if len(exact) < most && len(text) >= findCounters {
			exact = append(exact, s.counters(ctx, subject, text)...)
		}
	}
	return unique(append(exact, partly...), most), nil
}

// ranked returns the keys in the rankings with the value text, and those with text in a value.
func (s *Service) ranked(
	ctx context.Context, world *snapshot.Snapshot, q metrics.Query, text string,
) (exact, partly []FoundKey, err error) {
	for _, by := range []metrics.KeyRanking{metrics.LimitedKeys, metrics.AllowedKeys} {
		top, err := s.cfg.Analytics.Keys(ctx, q, by)
		if err != nil {
			return nil, nil, err
		}
		for i := range top.Keys {
			k := &top.Keys[i]
			subject, known := world.SubjectByNumber(k.Tenant)
			if !known || k.Redacted || !counts(subject, k) {
				continue
			}
			found := FoundKey{subject.Tenant, k.Policy, partsOf(k)}
			switch {
			case slices.Contains(k.Values, text):
				exact = append(exact, found)
			case slices.ContainsFunc(k.Values, func(v string) bool { return strings.Contains(v, text) }):
				partly = append(partly, found)
			}
		}
	}
	return exact, partly, nil
}

// counts reports whether the tenant's plan has the policy of a key, and counts it by the same
// attributes.
func counts(subject *enforcement.Subject, k *metrics.TopKey) bool {
	if subject.Plan == nil {
		return false
	}
	r, known := subject.Plan.Rule(k.Policy)
	return known && slices.Equal(r.CountBy, k.Names)
}

// counters returns the keys with this value whose counters are in use, of the policies that count
// by one attribute.
func (s *Service) counters(ctx context.Context, subject *enforcement.Subject, value string) (list []FoundKey) {
	if subject.Plan == nil {
		return nil
	}
	var asked []enforcement.CountedKey
	var keys []FoundKey
	for _, r := range subject.Plan.Rules {
		names := attributesOf(r)
		if len(names) != 1 {
			continue
		}
		parts, err := keyOf(r, map[string]string{names[0]: value})
		if err != nil {
			continue // not a value of this attribute, such as an invalid IP address
		}
		keys = append(keys, FoundKey{subject.Tenant, r.Policy, parts})
		asked = append(asked, enforcement.CountedKey{Rule: r, Key: []enforcement.Attribute{{Name: names[0], Value: value}}})
	}
	at, states, err := s.cfg.Engine.KeyStates(ctx, subject, asked)
	if err != nil {
		return nil
	}
	for i := range states {
		if slices.ContainsFunc(states[i].Limits, func(l enforcement.CounterState) bool { return l.Meter.ResetAfter(l.State, at) > 0 }) {
			list = append(list, keys[i])
		}
	}
	return list
}

// unique returns the first most keys, each once.
func unique(list []FoundKey, most int) (out []FoundKey) {
	seen := map[string]bool{}
	for _, k := range list {
		if id := k.Tenant + " " + keyID(k.Policy, k.Key); !seen[id] && len(out) < most {
			seen[id] = true
			out = append(out, k)
		}
	}
	return out
}
