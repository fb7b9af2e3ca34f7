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
	// findSpan is how far back FindKeys searches in the rankings of keys.
	findSpan = 24 * time.Hour
	// findTenants is the maximum number of tenants whose counters FindKeys reads. It selects the
	// tenants with the most requests.
	findTenants = 100
	// findCounters is the minimum length of a search text for which FindKeys reads counters of all
	// tenants.
	findCounters = 3
)

// A FoundKey is a key that FindKeys has found.
type FoundKey struct {
	Tenant string // slug
	Policy string // slug
	Key    []enforcement.KeyPart
}

// FindKeys searches for keys by their values. It searches the keys of one tenant, or of all tenants
// if tenant is "". It returns at most most keys: first those with the value text, then those that
// contain text in a value. FindKeys searches the rankings of keys of the last day. For policies
// that count by one attribute, it also reads the counters of the value text, for at most
// findTenants tenants. If the limiter does not answer, FindKeys returns no error, and the result
// comes only from the rankings.
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

// ranked returns two lists of keys in the rankings: those with the value text, and those that
// contain text in a value.
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

// counts reports whether the tenant's plan still has the policy of the key k, and whether the
// policy still counts by the same attributes.
func counts(subject *enforcement.Subject, k *metrics.TopKey) bool {
	if subject.Plan == nil {
		return false
	}
	r, known := subject.Plan.Rule(k.Policy)
	return known && slices.Equal(r.CountBy, k.Names)
}

// counters returns keys with this value whose counters are in use. It considers only policies that
// count by one attribute.
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
			continue // the text is not a valid value of this attribute, for example not an IP address
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

// unique returns the first most different keys of list.
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
