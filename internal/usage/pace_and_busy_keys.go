package usage

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
)

// A pace is measured over the current minute and the paceMinutes minutes before it. Minutes at the
// beginning of this time in which the tenant had no requests are left out. The time is at least
// leastPace, because otherwise a single request would result in a high pace.
const (
	paceMinutes = 4
	leastPace   = time.Minute
)

// busySpan is how far back the ranking of the busiest keys reaches.
const busySpan = time.Hour

// rankedKeys and rankedPolicies are the maximum numbers of keys and of policies in a ranking that
// Analytics returns.
const (
	rankedKeys     = 100
	rankedPolicies = 100
)

// counted contains the recorded counts of a tenant: the counts of the last minutes, from which
// paces are computed, and the busiest keys of the last hour. The zero value contains no counts;
// no pace is then known.
type counted struct {
	known  bool
	redact bool
	over   time.Duration
	// policies contains the counts of each policy by slug. morePolicies says that policies
	// which are missing in policies may have counts too.
	policies     map[string]metrics.Counts
	morePolicies bool
	// allowed and limited have the counts of the busiest keys in the last minutes, by keyID. If a
	// key is missing in allowed, its count is at most allowedFloor. If it is missing in limited,
	// its count is at most limitedFloor.
	allowed, limited           map[string]metrics.TopKey
	allowedFloor, limitedFloor int64
	busy                       []metrics.TopKey // the most denied and the most allowed keys of the last hour, alternating
	moreBusy                   bool
}

// count reads the recorded counts of a tenant. If policy is not "", it reads only those of this
// policy. If busy is true, it also reads the busiest keys of the last hour.
func (s *Service) count(ctx context.Context, subject *enforcement.Subject, policy string, busy bool) (*counted, error) {
	c := &counted{redact: subject.Redact}
	if s.cfg.Analytics == nil {
		return c, nil
	}
	now := s.cfg.Now()
	pace := metrics.Query{Tenant: subject.Number, From: now.Truncate(time.Minute).Add(-paceMinutes * time.Minute), To: now}
	ofPolicy := func(q metrics.Query, limit int) metrics.Query {
		q.Policy, q.Limit = policy, limit
		return q
	}
	hour := ofPolicy(pace, rankedKeys)
	hour.From = now.Add(-busySpan)
	var total metrics.Traffic
	var policies metrics.RouteRanking
	var allowed, limited, busyAllowed, busyLimited metrics.TopKeys
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { total, err = s.cfg.Analytics.Traffic(ctx, pace); return err })
	group.Go(func() (err error) {
		policies, err = s.cfg.Analytics.Policies(ctx, ofPolicy(pace, rankedPolicies))
		return err
	})
	keys := func(into *metrics.TopKeys, q metrics.Query, by metrics.KeyRanking) {
		group.Go(func() (err error) { *into, err = s.cfg.Analytics.Keys(ctx, q, by); return err })
	}
	keys(&allowed, ofPolicy(pace, rankedKeys), metrics.AllowedKeys)
	keys(&limited, ofPolicy(pace, rankedKeys), metrics.LimitedKeys)
	if busy {
		keys(&busyAllowed, hour, metrics.AllowedKeys)
		keys(&busyLimited, hour, metrics.LimitedKeys)
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	c.known, c.over = true, measured(&total, now)
	c.policies, c.morePolicies = make(map[string]metrics.Counts), policies.More
	for i := range policies.Routes {
		c.policies[policies.Routes[i].Name] = policies.Routes[i].Total
	}
	c.allowed, c.allowedFloor = byID(&allowed), allowed.Floor
	c.limited, c.limitedFloor = byID(&limited), limited.Floor
	for i := range max(len(busyLimited.Keys), len(busyAllowed.Keys)) {
		if i < len(busyLimited.Keys) {
			c.busy = append(c.busy, busyLimited.Keys[i])
		}
		if i < len(busyAllowed.Keys) {
			c.busy = append(c.busy, busyAllowed.Keys[i])
		}
	}
	c.moreBusy = busyAllowed.Floor > 0 || busyLimited.Floor > 0
	return c, nil
}

// measured returns the length of the time over which a pace is measured. total contains the counts
// of the tenant for each minute.
func measured(total *metrics.Traffic, now time.Time) time.Duration {
	from := total.From
	for i := range total.Points {
		if total.Points[i].Requests > 0 {
			from = total.Points[i].At
			break
		}
	}
	return max(now.Sub(from), leastPace)
}

// keyID returns a text that identifies a key of a tenant. The text does not depend on whether
// the key comes from a request or from a ranking.
func keyID(policy string, key []enforcement.KeyPart) string {
	var b strings.Builder
	b.WriteString(policy)
	for _, part := range key {
		b.WriteByte(' ')
		b.WriteString(part.Name)
		if !part.Missing {
			b.WriteString(strconv.Quote(part.Value))
		}
	}
	return b.String()
}

func byID(top *metrics.TopKeys) map[string]metrics.TopKey {
	list := make(map[string]metrics.TopKey, len(top.Keys))
	for _, k := range top.Keys {
		if !k.Redacted {
			list[keyID(k.Policy, partsOf(&k))] = k
		}
	}
	return list
}

func partsOf(k *metrics.TopKey) []enforcement.KeyPart {
	parts := make([]enforcement.KeyPart, len(k.Names))
	for i := range parts {
		parts[i] = enforcement.KeyPart{Name: k.Names[i], Value: k.Values[i], Missing: k.Missing[i]}
	}
	return parts
}

// policy returns the usage of a policy with its busiest keys. The field Limits of each key is not
// set yet.
func (c *counted) policy(r *enforcement.Rule) PolicyUsage {
	p := PolicyUsage{
		Policy: r.Policy, Mode: r.Mode, Methods: r.Methods, Path: r.Path, Attributes: r.RuleSpec.Attributes,
		CountBy: r.CountBy, Keys: []KeyUsage{},
	}
	p.Pace = c.paceOf(r.Policy)
	if len(r.CountBy) == 0 {
		p.Keys = append(p.Keys, KeyUsage{})
		return p
	}
	p.More = c.moreBusy || !c.known
	shown := make(map[string]bool)
	for i := range c.busy {
		k := &c.busy[i]
		if k.Policy != r.Policy || !slices.Equal(k.Names, r.CountBy) {
			continue // the key belongs to another policy, or count_by had other attributes when the key was counted
		}
		key := KeyUsage{Key: partsOf(k), Redacted: k.Redacted}
		id := keyID(k.Policy, key.Key) + strconv.FormatBool(k.Redacted)
		switch {
		case shown[id]:
		case len(p.Keys) == MaxKeys:
			p.More = true
			return p
		default:
			shown[id] = true
			p.Keys = append(p.Keys, key)
		}
	}
	return p
}

// paceOf returns the pace of all keys of a policy together.
func (c *counted) paceOf(policy string) Pace {
	n, found := c.policies[policy]
	if !c.known || !found && c.morePolicies {
		return Pace{}
	}
	cost := 1.0 // The cost of a denied request is not recorded; the average cost of the allowed requests is used.
	if passed := n.Allowed() - n.ShadowRefused; passed > 0 {
		cost = float64(n.Cost) / float64(passed)
	}
	minutes := c.over.Minutes()
	return Pace{
		Known: true, PerMinute: float64(n.Cost) / minutes, RefusedPerMinute: cost * float64(n.OverLimit+n.ShadowRefused) / minutes,
		Requests: float64(n.Allowed()+n.OverLimit) / minutes, Over: c.over,
	}
}

// pace returns the pace of one key. If the policy counts the whole tenant by one key, this is the
// pace of the policy. For other keys, only the number of requests is recorded, and not the cost.
// pace therefore multiplies this number by the average cost of the policy's requests.
func (c *counted) pace(p *PolicyUsage, key *KeyUsage) Pace {
	if len(p.CountBy) == 0 {
		return p.Pace
	}
	if !p.Pace.Known || c.redact || !p.Mode.InForce() {
		return Pace{}
	}
	id := keyID(p.Policy, key.Key)
	passed, passedError := of(c.allowed, id, c.allowedFloor)
	refused, refusedError := of(c.limited, id, c.limitedFloor)
	if 2*(passedError+refusedError) > passed+refused {
		return Pace{}
	}
	cost, minutes := 1.0, c.over.Minutes()
	if p.Pace.Requests > 0 {
		cost = (p.Pace.PerMinute + p.Pace.RefusedPerMinute) / p.Pace.Requests
	}
	return Pace{
		Known: true, PerMinute: cost * float64(passed) / minutes, RefusedPerMinute: cost * float64(refused) / minutes,
		Requests: float64(passed+refused) / minutes, Error: cost * float64(passedError+refusedError) / minutes, Over: c.over,
	}
}

// of returns the count of the key with this ID in a ranking. The true count is at least count-wrong
// and at most count. If the ranking does not contain the key, both results are floor.
func of(ranking map[string]metrics.TopKey, id string, floor int64) (count, wrong int64) {
	if k, ranked := ranking[id]; ranked {
		return k.Count, k.Error
	}
	return floor, floor
}
