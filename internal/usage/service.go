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

// Config of a Service.
type Config struct {
	// Snapshot gives the world in force, nil before the first one.
	Snapshot func() *snapshot.Snapshot
	// Engine asks the limiter, and resets.
	Engine *enforcement.Engine
	// Analytics tells which keys are busy, and how fast. Default: none; then only
	// whole tenants and keys that are named are shown, and no pace is known.
	Analytics *metrics.Analytics
	// Exceptions plans resets and notes them. Default: none, and 503 to a reset.
	Exceptions *exceptions.Service
	// Now tells the time. Default time.Now.
	Now func() time.Time
}

// A Service tells of usage. It is safe for concurrent use.
//
// A tenant is told by id or slug. The caller has made sure that whoever asks may
// know of it.
type Service struct{ cfg Config }

// NewService makes a Service.
func NewService(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg}
}

// Tenant tells of every policy of a tenant's plan; NotFound, and Unavailable
// (code limiter_unavailable) when the limiter cannot be asked.
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
	return u, s.fill(ctx, &u, subject, seen)
}

// Policy tells of one policy of a tenant's plan, as Tenant does.
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

// Key tells of one key of one policy: Policies has that policy, with that one
// key. key has the values of count_by by the name of the attribute, as blocks and
// resets take them; what is not there was not sent. NotFound, Invalid (what is no
// key of the policy, at /key/name), and Unavailable as Tenant.
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
		return nil, problem.New(problem.Unavailable, "this node does not know the tenants yet")
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

// header begins an answer.
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

// keyOf judges a key that somebody named.
func keyOf(r *enforcement.Rule, key map[string]string) ([]enforcement.KeyPart, error) {
	var f problem.Fields
	check := enforcement.Check{}
	for _, name := range slices.Sorted(maps.Keys(key)) {
		at, value := "/key/"+problem.Escape(name), key[name]
		switch {
		case len(r.CountBy) == 0:
			f.Add(at, "the policy counts the whole tenant: its one key has no values")
		case !slices.ContainsFunc(r.CountBy, func(by string) bool { return attributeOf(by) == name }):
			f.Add(at, "the policy does not count by this; it counts by %s", strings.Join(attributesOf(r), ", "))
		case value == "":
			f.Add(at, "must not be empty: what was not sent is left out")
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

// address reads the value of ip, of a policy that counts by ip/64 also a /64.
func address(f *problem.Fields, at string, r *enforcement.Rule, value string) string {
	if n, err := netip.ParsePrefix(value); err == nil && slices.Contains(r.CountBy, "ip/64") && n.Addr().Is6() && n.Bits() == 64 && n == n.Masked() {
		value = n.Addr().String()
	}
	_, canonical, err := enforcement.CanonicalIP(value)
	if err != nil {
		f.Add(at, "%v", err)
	}
	return canonical
}

// attributeOf gives the attribute of a name in count_by.
func attributeOf(by string) string {
	if by == "ip/64" {
		return "ip"
	}
	return by
}

func attributesOf(r *enforcement.Rule) []string {
	var list []string
	for _, by := range r.CountBy {
		if name := attributeOf(by); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// fill asks the limiter once what all keys of an answer hold.
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
	at, held, err := s.cfg.Engine.KeyStates(ctx, subject, asked)
	if err != nil {
		*u = Usage{}
		return &problem.Problem{
			Kind: problem.Unavailable, Code: "limiter_unavailable",
			Message: "the counters cannot be reached: what is left is not known", Cause: err,
		}
	}
	if at != 0 {
		u.At = time.UnixMicro(at).UTC()
	}
	for i := range held {
		keys[i].hold(&held[i], at, pace[i])
	}
	for i := range u.Policies {
		slices.SortStableFunc(u.Policies[i].Keys, closest)
	}
	return nil
}

// hold fills in what a key holds at an instant.
func (k *KeyUsage) hold(h *enforcement.KeyState, at int64, pace *Pace) {
	if o := h.Override; o != nil {
		k.Override = &InForce{ID: o.ID, Reason: o.Reason, Until: time.UnixMicro(o.Until).UTC()}
	}
	if b := h.Block; b != nil {
		k.Block = &InForce{ID: b.ID, Reason: b.Reason, Until: time.UnixMicro(b.Until).UTC()}
	}
	k.Limits = make([]LimitUsage, len(h.Limits))
	for i := range h.Limits {
		state, m := h.Limits[i].State, h.Limits[i].Limit.Meter
		l := &k.Limits[i]
		l.Limit, l.Capacity = h.Limits[i].Limit.Limit, m.Quota
		if m.Algorithm.Bucket() {
			l.Capacity = m.Capacity
		}
		l.Used, l.Remaining = l.Capacity-m.Left(state, at), m.Remaining(state, at)
		l.ResetAfter = time.Duration(m.ResetAfter(state, at)) * time.Microsecond
		l.ExhaustedAfter = pace.exhausts(m, state, at)
	}
}

// exhausts is when a pace uses up what a counter holds. What holds nothing for
// one unit is used up at any pace.
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

// requests gives the pace as requests of one cost, of which one comes each so many
// microseconds; false when none comes, or nobody knows.
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

// closest orders keys: the one that is used up first goes first, then the one that
// has the smallest part left; what is not known goes last.
func closest(a, b KeyUsage) int {
	if a.Redacted != b.Redacted {
		if a.Redacted {
			return 1
		}
		return -1
	}
	ends, left := a.nearest()
	otherEnds, otherLeft := b.nearest()
	return cmp.Or(cmp.Compare(ends, otherEnds), cmp.Compare(left, otherLeft))
}

// nearest tells, of the limit that comes first, when it is used up, and of the one
// of which the smallest part is left, how much that is.
func (k *KeyUsage) nearest() (ends time.Duration, left float64) {
	ends, left = math.MaxInt64, 1
	for i := range k.Limits {
		l := &k.Limits[i]
		if l.ExhaustedAfter != nil {
			ends = min(ends, *l.ExhaustedAfter)
		}
		left = min(left, float64(l.Remaining)/float64(max(l.Capacity, 1)))
	}
	return ends, left
}
