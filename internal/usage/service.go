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
	// Analytics ranks keys and measures paces. Default: none; then results contain only whole tenants and explicitly
	// requested keys, and no pace.
	Analytics *metrics.Analytics
	// Exceptions validates and audits resets. Default: none; then Reset returns problem.Unavailable.
	Exceptions *exceptions.Service
	// Counters returns the number of live counters of a tenant. Default: none; then Usage.Counters is nil.
	Counters func(context.Context, *enforcement.Subject) (Counters, error)
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// A Service reports usage. It is safe for concurrent use.
//
// The tenant argument is an ID or a slug. The caller checks that the user may read
// the tenant.
type Service struct{ cfg Config }

// NewService returns a Service that reads from the parts of cfg.
func NewService(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg}
}

// Tenant returns the usage of all policies of a tenant's plan. Errors: problem.NotFound; problem.Unavailable with the
// code limiter_unavailable if the limiter is unavailable.
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

// Policy returns the usage of one policy of a tenant's plan. It returns the same errors as Tenant.
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

// Key returns the usage of one key of one policy. key contains the key's value for each attribute of count_by, as in
// blocks and resets; an absent attribute counts as missing. It returns the same errors as Tenant, and problem.Invalid
// at /key/name for a value that cannot belong to a key of the policy.
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

// header returns a Usage that has no policies yet.
func (s *Service) header(subject *enforcement.Subject) Usage {
	u := Usage{At: s.cfg.Now().UTC(), Policies: []PolicyUsage{}}
	if subject == nil {
		return u
	}
	u.TenantID, u.Tenant = subject.TenantID, subject.Tenant
	if subject.Plan != nil {
		u.Plan, u.PlanVersion = subject.Plan.Slug, subject.Plan.Version
	}
	return u
}

// keyOf validates a key that the caller passed and converts it to the parts of count_by.
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

// address parses the value of ip. For a policy that counts by ip/64, the value may
// be a /64 network.
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

// fill reads the counters of all keys of u from the limiter, in one call.
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

// setState sets the limits and the exceptions of a key from the key's state at an instant.
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
		l.Capacity = l.Limit.Capacity()
		l.Used, l.Remaining = l.Capacity-m.Left(state, at), m.Remaining(state, at)
		l.ResetAfter = time.Duration(m.ResetAfter(state, at)) * time.Microsecond
		if l.Limit.Period != enforcement.NoPeriod && l.ResetAfter > 0 && calendar != nil {
			l.ResetsAt = time.UnixMicro(at).Add(l.ResetAfter).In(calendar.Zone)
		}
		l.ExhaustedAfter = pace.exhausts(m, state, at)
	}
}

// exhausts returns the time until the limit denies at this pace. If nothing is left, it returns 0, at any pace. It
// returns nil if the limit never denies at this pace, or if the pace is unknown.
func (p *Pace) exhausts(m *enforcement.Meter, state enforcement.State, at int64) *time.Duration {
	after := time.Duration(0)
	if m.Remaining(state, at) == 0 {
		return &after
	}
	cost, every, ok := p.requests()
	if !ok {
		return nil
	}
	micros, ok := m.DeniedAfter(state, at, cost, every)
	if !ok {
		return nil
	}
	if after = math.MaxInt64; micros < int64(after)/1000 {
		after = time.Duration(micros) * time.Microsecond
	}
	return &after
}

// requests returns the pace as requests of one cost at a fixed interval in
// microseconds. ok is false if the pace is 0 or unknown.
func (p *Pace) requests() (cost, every int64, ok bool) {
	minutely := p.PerMinute + p.RefusedPerMinute
	if !p.Known || minutely <= 0 || p.Requests <= 0 {
		return 0, 0, false
	}
	const minute = 60e6
	each := max(math.Round(minutely/p.Requests), math.Ceil(minutely/minute), 1)
	each = min(each, enforcement.MaxCost)
	return int64(each), max(int64(math.Round(each*minute/minutely)), 1), true
}

// closest compares keys for sorting by the time until a limit denies at the present
// pace, the soonest first, and then by the smallest fraction left. Redacted keys come
// last.
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

// exhaustion returns the least ExhaustedAfter of the limits, and the smallest
// fraction that one of them has left.
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
