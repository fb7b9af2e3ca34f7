package usage

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
)

// Config configures a Service.
type Config struct {
	// Snapshot returns the current snapshot, or nil before the first one is loaded.
	Snapshot func() *snapshot.Snapshot
	// Engine reads and resets the counters.
	Engine *enforcement.Engine
	// Analytics returns the busiest keys, and the counts from which paces are computed.
	// Default: none. A result then contains only the keys of whole tenants and the requested
	// key, and no pace is known.
	Analytics *metrics.Analytics
	// Exceptions validates resets and writes their audit lines. Default: none; Reset then
	// returns problem.Unavailable.
	Exceptions *exceptions.Service
	// Counters returns the number of live counters of a tenant in the limiter. Default: none;
	// Usage.Counters is then nil.
	Counters func(context.Context, *enforcement.Subject) (Counters, error)
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// A Service returns the usage of tenants. It is safe for concurrent use.
//
// The parameter tenant of its methods is an ID or a slug. The methods do not check permissions,
// so the caller must.
type Service struct{ cfg Config }

// NewService returns a Service that reads from the parts of cfg.
func NewService(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg}
}

// Tenant returns the usage of all policies of a tenant's plan. The error is problem.NotFound, or
// problem.Unavailable with the code limiter_unavailable if the limiter does not answer.
func (s *Service) Tenant(ctx context.Context, tenant string) (Usage, error) {
	subject, err := s.subject(tenant)
	if err != nil || subject.Plan == nil {
		return s.header(subject), err
	}
	seen, err := s.count(ctx, subject, "", true)
	if err != nil {
		return Usage{}, err
	}
	u := s.header(subject)
	for _, r := range subject.Plan.Rules {
		u.Policies = append(u.Policies, seen.policy(r))
	}
	if err := s.fill(ctx, &u, subject, seen); err != nil {
		return u, err
	}
	if s.cfg.Counters != nil {
		if n, err := s.cfg.Counters(ctx, subject); err == nil {
			u.Counters = &n
		}
	}
	return u, nil
}

// wholePolicies is the maximum number of policies that WholeTenant reads.
const wholePolicies = 50

// WholeTenant returns the usage of policies that are in force and count the whole tenant by one
// key, at most wholePolicies of them. It reads no recorded counts, so all paces are unknown. It is
// fast enough for a list of tenants. The errors are those of Tenant.
func (s *Service) WholeTenant(ctx context.Context, tenant string) (Usage, error) {
	subject, err := s.subject(tenant)
	if err != nil || subject.Plan == nil {
		return s.header(subject), err
	}
	u, seen := s.header(subject), new(counted)
	for _, r := range subject.Plan.Rules {
		if len(r.CountBy) == 0 && len(r.Limits) > 0 && r.Mode.InForce() && len(u.Policies) < wholePolicies {
			u.Policies = append(u.Policies, seen.policy(r))
		}
	}
	return u, s.fill(ctx, &u, subject, seen)
}

// Policy returns the usage of one policy of a tenant's plan. The errors are those of Tenant.
func (s *Service) Policy(ctx context.Context, tenant, policy string) (Usage, error) {
	subject, rule, err := s.rule(tenant, policy)
	if err != nil {
		return Usage{}, err
	}
	seen, err := s.count(ctx, subject, policy, true)
	if err != nil {
		return Usage{}, err
	}
	u := s.header(subject)
	u.Policies = append(u.Policies, seen.policy(rule))
	return u, s.fill(ctx, &u, subject, seen)
}

// Key returns the usage of one key of one policy. key contains the value of each attribute of
// count_by, as in blocks and resets. If an attribute is missing in key, Key returns the usage of
// requests without this attribute. The errors are those of Tenant, and problem.Invalid at /key/name
// for a value that no key of the policy can have.
func (s *Service) Key(ctx context.Context, tenant, policy string, key map[string]string) (Usage, error) {
	subject, rule, err := s.rule(tenant, policy)
	if err != nil {
		return Usage{}, err
	}
	parts, err := keyOf(rule, key)
	if err != nil {
		return Usage{}, err
	}
	seen, err := s.count(ctx, subject, policy, false)
	if err != nil {
		return Usage{}, err
	}
	u := s.header(subject)
	p := seen.policy(rule)
	p.Keys, p.More = []KeyUsage{{Key: parts}}, len(rule.CountBy) > 0
	u.Policies = append(u.Policies, p)
	return u, s.fill(ctx, &u, subject, seen)
}

func (s *Service) subject(tenant string) (*enforcement.Subject, error) {
	world := s.cfg.Snapshot()
	if world == nil {
		return nil, problem.New(problem.Unavailable, "this node has not loaded the tenants yet")
	}
	if subject, ok := world.Subject(tenant); ok {
		return subject, nil
	}
	return nil, problem.New(problem.NotFound, "there is no such tenant")
}

func (s *Service) rule(tenant, policy string) (*enforcement.Subject, *enforcement.Rule, error) {
	subject, err := s.subject(tenant)
	if err != nil {
		return nil, nil, err
	}
	if subject.Plan != nil {
		if r, ok := subject.Plan.Rule(policy); ok {
			return subject, r, nil
		}
	}
	return nil, nil, problem.New(problem.NotFound, "the tenant's plan has no policy with this slug")
}

// header returns the Usage of a tenant with an empty list of policies.
func (s *Service) header(subject *enforcement.Subject) Usage {
	u := Usage{At: s.cfg.Now().UTC(), Zone: time.UTC, Policies: []PolicyUsage{}}
	if subject == nil {
		return u
	}
	u.TenantID, u.Tenant = subject.TenantID, subject.Tenant
	if subject.Calendar != nil {
		u.Zone = subject.Calendar.Zone
	}
	if subject.Plan != nil {
		u.Plan, u.PlanVersion = subject.Plan.Slug, subject.Plan.Version
	}
	return u
}

// keyOf validates a key and returns its parts in the order of count_by.
func keyOf(r *enforcement.Rule, key map[string]string) ([]enforcement.KeyPart, error) {
	var f problem.Fields
	check := enforcement.Check{}
	for _, name := range slices.Sorted(maps.Keys(key)) {
		at, value := "/key/"+problem.Escape(name), key[name]
		switch {
		case len(r.CountBy) == 0:
			f.Add(at, "the policy counts the whole tenant, so its key has no values")
		case !slices.ContainsFunc(r.CountBy, func(by string) bool { return enforcement.CountedAttribute(by) == name }):
			f.Add(at, "the policy does not count by this; it counts by %s", strings.Join(attributesOf(r), ", "))
		case value == "":
			f.Add(at, "must not be empty: leave out a missing attribute")
		case len(value) > enforcement.MaxAttributeValue || !utf8.ValidString(value):
			f.Add(at, "must be text of at most %d bytes", enforcement.MaxAttributeValue)
		case name == "ip":
			value = address(&f, at, r, value)
		}
		check.Attributes = append(check.Attributes, enforcement.Attribute{Name: name, Value: value})
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	return r.KeyOf(&check, nil), nil
}

// address returns the value of ip in canonical form. If the value is invalid, it adds a fault
// to f. If the policy counts by ip/64, a /64 network is valid too.
func address(f *problem.Fields, at string, r *enforcement.Rule, value string) string {
	if n, err := netip.ParsePrefix(value); err == nil && slices.Contains(r.CountBy, enforcement.IPNetwork) && n.Addr().Is6() &&
		n.Bits() == 64 && n == n.Masked() {
		value = n.Addr().String()
	}
	_, canonical, err := enforcement.CanonicalIP(value)
	if err != nil {
		f.Add(at, "%v", err)
	}
	return canonical
}

func attributesOf(r *enforcement.Rule) []string {
	var list []string
	for _, by := range r.CountBy {
		if name := enforcement.CountedAttribute(by); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// fill sets the limits of all keys in u. It reads the states of all their counters with one
// call of the limiter.
func (s *Service) fill(ctx context.Context, u *Usage, subject *enforcement.Subject, seen *counted) error {
	var asked []enforcement.CountedKey
	var keys []*KeyUsage
	var pace []*Pace
	for i := range u.Policies {
		p := &u.Policies[i]
		rule, _ := subject.Plan.Rule(p.Policy)
		for k := range p.Keys {
			key := &p.Keys[k]
			key.Pace = seen.pace(p, key)
			if key.Redacted {
				continue
			}
			named := enforcement.CountedKey{Rule: rule}
			for name, value := range key.Attributes() {
				named.Key = append(named.Key, enforcement.Attribute{Name: name, Value: value})
			}
			asked, keys, pace = append(asked, named), append(keys, key), append(pace, &key.Pace)
		}
	}
	at, states, err := s.cfg.Engine.KeyStates(ctx, subject, asked)
	if err != nil {
		*u = Usage{}
		return &problem.Problem{
			Kind: problem.Unavailable, Code: "limiter_unavailable",
			Message: "the limiter is unavailable: the counters cannot be read", Cause: err,
		}
	}
	if at != 0 {
		u.At = time.UnixMicro(at).UTC()
	}
	for i := range states {
		keys[i].setState(&states[i], subject.Calendar, at, pace[i])
	}
	for i := range u.Policies {
		slices.SortStableFunc(u.Policies[i].Keys, closest)
	}
	return nil
}

// setState sets the limits, the override and the block of the key k. h is the state of its
// counters at the time at, in microseconds since the epoch.
func (k *KeyUsage) setState(h *enforcement.KeyState, calendar *enforcement.Calendar, at int64, pace *Pace) {
	if o := h.Override; o != nil {
		k.Override = &InForce{ID: o.ID, Reason: o.Reason, Until: time.UnixMicro(o.Until).UTC()}
	}
	if b := h.Block; b != nil {
		k.Block = &InForce{ID: b.ID, Reason: b.Reason, Until: time.UnixMicro(b.Until).UTC()}
	}
	k.Limits = make([]LimitUsage, len(h.Limits))
	for i := range h.Limits {
		state, m := h.Limits[i].State, h.Limits[i].Meter
		l := &k.Limits[i]
		l.Limit = h.Limits[i].Limit.Limit
		l.Window = time.Duration(m.WindowAt(&state, at)) * time.Microsecond
		l.RolledOver = m.RolledOver(&state)
		l.Capacity = l.Limit.Capacity() + l.RolledOver
		l.Used, l.Remaining = l.Capacity-m.Left(state, at), m.Remaining(state, at)
		l.ResetAfter = time.Duration(m.ResetAfter(state, at)) * time.Microsecond
		if l.Limit.Period != enforcement.NoPeriod && l.ResetAfter > 0 && calendar != nil {
			l.ResetsAt = time.UnixMicro(at).Add(l.ResetAfter).In(calendar.Zone)
		}
		for _, holder := range state.Holders {
			if !h.Limits[i].Shared {
				l.Holders = append(l.Holders, Holder{enforcement.LeaseText(holder.ID), holder.Units, time.UnixMicro(holder.Until).UTC()})
			}
		}
		granted := int64(0)
		for _, g := range h.Limits[i].Grants {
			granted += g.Left
			l.Grants = append(l.Grants, GrantLeft{g.ID, g.Reason, g.Units, g.Left, time.UnixMicro(g.Until).UTC()})
		}
		if m.Quota > 0 {
			l.Remaining += granted
		}
		l.ExhaustedAfter = pace.exhausts(m, state, at, granted)
	}
}

// exhausts returns the time from at until the limit denies a request at the pace p. If nothing is
// left at the time at, it returns 0. If the limit never denies at this pace, or if the pace is
// unknown, it returns nil. granted is the number of units that are left of the grants of the limit.
// exhausts counts these units only in the current window.
func (p *Pace) exhausts(m *enforcement.Meter, state enforcement.State, at, granted int64) *time.Duration {
	after := time.Duration(0)
	if m.Quota == 0 {
		granted = 0 // such a limit denies everything
	}
	if m.Remaining(state, at)+granted == 0 {
		return &after
	}
	cost, interval, ok := p.requests()
	if !ok {
		return nil
	}
	begin := int64(0) // start of the window in which the quota is used up, relative to at
	micros, ok := m.DeniedAfter(state, at, cost, interval)
	if ok && granted > 0 {
		if begin = m.ResetAfter(state, at); begin == 0 {
			begin = m.WindowAt(&state, at)
		}
		more := *m
		more.Quota += granted
		if micros, ok = more.DeniedAfter(state, at, cost, interval); ok && micros < begin {
			begin = 0
		} else {
			state, _ = m.Settle(state, m.Rev, at+begin)
			micros, ok = m.DeniedAfter(state, at+begin, cost, interval)
		}
	}
	if !ok {
		return nil
	}
	if after = math.MaxInt64; micros+begin < int64(after)/1000 {
		after = time.Duration(micros+begin) * time.Microsecond
	}
	return &after
}

// requests converts the pace to a steady stream of equal requests. cost is the cost of each request,
// and interval the time between two requests in microseconds. ok is false if the pace is 0 or unknown.
func (p *Pace) requests() (cost, interval int64, ok bool) {
	minutely := p.PerMinute + p.RefusedPerMinute
	if !p.Known || minutely <= 0 || p.Requests <= 0 {
		return 0, 0, false
	}
	const minute = 60e6
	each := max(math.Round(minutely/p.Requests), math.Ceil(minutely/minute), 1)
	each = min(each, enforcement.MaxCost)
	return int64(each), max(int64(math.Round(each*minute/minutely)), 1), true
}

// closest compares two keys for the order of a result. Keys that a limit will deny at the current
// pace come first, the soonest denied first. Then come the others, the key with the smallest part
// of a quota left first. Redacted keys come last.
func closest(a, b KeyUsage) int {
	if a.Redacted != b.Redacted {
		if a.Redacted {
			return 1
		}
		return -1
	}
	after, left := a.exhaustion()
	otherAfter, otherLeft := b.exhaustion()
	return cmp.Or(cmp.Compare(after, otherAfter), cmp.Compare(left, otherLeft))
}

// exhaustion returns two numbers: the shortest ExhaustedAfter of the key's limits, and the smallest
// part that one of these limits has left.
func (k *KeyUsage) exhaustion() (after time.Duration, left float64) {
	after, left = math.MaxInt64, 1
	for i := range k.Limits {
		l := &k.Limits[i]
		if l.ExhaustedAfter != nil {
			after = min(after, *l.ExhaustedAfter)
		}
		left = min(left, float64(l.Remaining)/float64(max(l.Capacity, 1)))
	}
	return after, left
}
