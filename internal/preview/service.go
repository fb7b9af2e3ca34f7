package preview

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Config configures a Service. Plans, Tenants, Exceptions, Analytics and Audit are required.
type Config struct {
	Plans      *plans.Service
	Tenants    *tenants.Service
	Exceptions *exceptions.Service
	Analytics  *metrics.Analytics
	// Audit contains the times at which versions were published and at which tenants changed to
	// another plan.
	Audit audit.Store
	// Subject returns the compiled tenant with this number. The Service reads the overrides of
	// a tenant from the store only if Subject returns one that has exceptions. Default: the
	// Service reads the overrides of every tenant.
	Subject func(number uint32) (*enforcement.Subject, bool)
	// Rows is the maximum number of rows of counts by minute that one preview reads. Rankings
	// is the maximum number of rankings of keys by minute that it reads. If there are more, the
	// preview reads those of the tenants with the most denials. Default: 30,000 and 4,500.
	Rows, Rankings int
	// NewLimiter creates the limiter that decides traced requests again. Default: none; previews
	// then have no Replay.
	NewLimiter NewLimiter
	// Traces is the maximum number of rows of traces that one preview reads. There is one for each
	// minute, tenant and node. Default: 4,000.
	Traces int
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Logger logs rows that cannot be decoded. Default: no logging.
	Logger *slog.Logger
}

// A Service computes previews of drafts. It is safe for concurrent use.
type Service struct{ c Config }

// NewService returns a Service that reads from the services of c.
func NewService(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Rows, c.Rankings = cmp.Or(c.Rows, 30_000), cmp.Or(c.Rankings, 4_500)
	c.Traces = cmp.Or(c.Traces, 4_000)
	return &Service{c}
}

// Draft returns the preview of a plan's draft for the time range [from, to), widened to whole
// minutes. If to is zero, it is now. If from is zero, it is 24 hours before to. The error is
// problem.NotFound, or problem.Invalid at from or to if the time range is empty or longer than
// seven days.
func (s *Service) Draft(ctx context.Context, plan string, from, to time.Time) (Preview, error) {
	return s.run(ctx, plan, nil, from, to)
}

// Document returns the preview of the document d in place of the plan's draft. d is not stored.
// The time range is the last 24 hours.
func (s *Service) Document(ctx context.Context, plan string, d plans.Document) (Preview, error) {
	return s.run(ctx, plan, &d, time.Time{}, time.Time{})
}

// run returns the preview of other if it is not nil, and otherwise that of the plan's draft.
func (s *Service) run(ctx context.Context, plan string, other *plans.Document, from, to time.Time) (Preview, error) {
	r, err := s.begin(ctx, plan, other, from, to)
	if err != nil {
		return Preview{}, err
	}
	if err := r.settleSpan(ctx); err != nil {
		return Preview{}, err
	}
	if err := r.readTenants(ctx); err != nil {
		return Preview{}, err
	}
	if err := r.readSums(ctx); err != nil {
		return Preview{}, err
	}
	r.reconsider()
	if err := r.replayTenants(ctx); err != nil {
		return Preview{}, err
	}
	if err := r.show(ctx); err != nil {
		return Preview{}, err
	}
	return r.preview, nil
}

// A run is the state of the computation of one preview.
type run struct {
	service          *Service
	preview          Preview
	draft, published side
	version          plans.Version // the published version
	verdicts         []verdict
	since            time.Time       // time at which all nodes had loaded the published version; zero if no other one decided
	cuts             map[string]cut  // by slug of a published policy
	varied           map[string]bool // slugs of the published policies that earlier versions have with other numbers or modes
	data             time.Time       // start of the counts by minute that are read; before From if limits need a warm-up
	keyed            []string        // slugs of the published policies whose rankings of keys are read
	counted          []string        // slugs of the published policies whose counts by minute are read
	members          []*member
	replays          map[string]*PolicyReplay // by slug
}

// A member is a tenant of the plan, with its counts in the time range.
type member struct {
	tenants.Tenant
	total    metrics.Counts
	policies map[string]*metrics.Counts
	parts    []part  // one for each policy of the draft, in the order of the draft
	known    []known // one for each policy of the draft; nil if no trace of the tenant was replayed
}

// begin reads the plan and computes the verdict of each policy of the draft.
func (s *Service) begin(ctx context.Context, idOrSlug string, other *plans.Document, from, to time.Time) (*run, error) {
	from, to, err := s.span(from, to)
	if err != nil {
		return nil, err
	}
	p, err := s.c.Plans.Plan(ctx, idOrSlug)
	if err != nil {
		return nil, err
	}
	if other != nil {
		p.Draft = *other
	}
	r := &run{service: s, preview: Preview{Plan: p, Published: p.Published, From: from, To: to}, draft: newSide(p.Draft)}
	if p.Published > 0 {
		v, err := s.c.Plans.Version(ctx, p.ID, p.Published)
		if err != nil {
			return nil, fmt.Errorf("read version %d of plan %s: %w", p.Published, p.Slug, err)
		}
		r.version, r.published = v, newSide(v.Document)
	}
	r.verdicts = assess(&r.draft, &r.published)
	return r, nil
}

// span returns the time range of a preview. It replaces zero times by the defaults, and widens
// the range to whole minutes.
func (s *Service) span(from, to time.Time) (time.Time, time.Time, error) {
	if to.IsZero() {
		to = s.c.Now()
	}
	if from.IsZero() {
		from = to.Add(-defaultSpan)
	}
	from = from.UTC().Truncate(time.Minute)
	if whole := to.UTC().Truncate(time.Minute); whole.Before(to) {
		to = whole.Add(time.Minute)
	}
	to = to.UTC()
	switch {
	case !to.After(from):
		return from, to, problem.At("to", "must be after from")
	case to.Sub(from) > maxSpan+time.Minute:
		return from, to, problem.At("from", "must be at most 7 days before to")
	}
	return from, to, nil
}

// maxWarmUp is the maximum length of the time before the time range for which counts are read.
// These counts show the state of the counters at the start of the range.
const maxWarmUp = 24 * time.Hour

// settleSpan moves the start of the time range if it must be later: to the time from which on counts
// of other versions are used (see readHistory), and, if the preview needs counts by minute, to the
// first minute whose rows are not deleted.
func (r *run) settleSpan(ctx context.Context) error {
	p := &r.preview
	if err := r.readHistory(ctx, p.From.Add(-maxWarmUp)); err != nil {
		return err
	}
	r.clip()
	warm := 0
	replays := false
	for i := range r.verdicts {
		if r.verdicts[i].how == howReplayed {
			replays = true
			warm = max(warm, warmUp(r.draft.policies[i].Limits))
		}
	}
	p.From = minTime(p.From, p.To)
	first := p.From.Add(-min(time.Duration(warm)*time.Minute, maxWarmUp))
	kept, err := r.service.c.Analytics.MinutesKept(ctx, first, p.To)
	if err != nil {
		return err
	}
	kept = wholeMinute(kept)
	for slug, c := range r.cuts {
		if c.at.Before(kept) { // only rows of hours are left of this time
			c.at = c.at.Add(time.Hour - time.Nanosecond).Truncate(time.Hour)
			r.cuts[slug] = c
		}
	}
	if kept.After(p.From) {
		// Counts from rows of hours are exact only if the time range begins with a whole hour.
		from := p.From.Add(time.Hour - time.Nanosecond).Truncate(time.Hour)
		if replays || from.After(kept) {
			from = kept
		}
		if replays {
			p.Clipped = "An estimate needs counts by minute, and they exist only from " + kept.Format("2 January 15:04 MST") + " on."
		}
		if p.From = minTime(from, p.To); p.From.Before(kept) {
			p.To = p.To.Add(time.Hour - time.Nanosecond).Truncate(time.Hour)
		}
	}
	r.data = minTime(maxTime(kept, first), p.From)
	return nil
}

func wholeMinute(t time.Time) time.Time {
	return t.UTC().Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// reconsider replaces the verdict of policies that need shadow if they had no requests. It then checks
// each verdict with moved set. If limits did not cause all denials of some
// tenant, it replaces the verdict. The new verdict estimates the policy by a replay, or has the
// certainty NeedsShadow.
func (r *run) reconsider() {
	for i := range r.verdicts {
		v := &r.verdicts[i]
		if v.how == howNone && v.traced >= 0 && r.idle(v.traced) {
			v.certainty, v.how, v.source = Exact, howZero, v.traced
			v.why = "The policy applied to no request in this time, so it denies nothing."
		}
		if !v.moved {
			continue
		}
		q := &r.published.policies[v.source]
		for _, m := range r.members {
			c := m.counts(q.Slug)
			if c.Requests > 0 && (m.NoPolicy == tenants.Deny || c.Requests != c.OK+c.Unmatched+c.Limited() || c.Degraded > 0) {
				rivals := v.rivals
				*v = v.replays(&r.draft.policies[i], q)
				v.rivals = rivals
				break
			}
		}
	}
}

// idle reports whether a published policy applied to no request in the whole time range.
func (r *run) idle(at int) bool {
	slug := r.published.policies[at].Slug
	return !r.countsFrom(slug).After(r.preview.From) &&
		!slices.ContainsFunc(r.members, func(m *member) bool { return m.counts(slug).Requests > 0 })
}

// replayTenants computes for each tenant the part of each policy of the draft. It starts with
// the tenants that have the most denials, because the number of rows that a preview reads is
// bounded.
func (r *run) replayTenants(ctx context.Context) error {
	r.chooseMinutes()
	order := slices.Clone(r.members)
	slices.SortStableFunc(order, func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.total.Limited()+b.total.ShadowRefused, a.total.Limited()+a.total.ShadowRefused),
			cmp.Compare(b.total.Requests, a.total.Requests))
	})
	rows, rankings := r.service.c.Rows, r.service.c.Rankings
	for _, m := range order {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range r.verdicts {
			m.parts[i] = r.partFromTotals(m, i)
		}
		if len(r.counted) == 0 || m.total.Requests == 0 {
			continue
		}
		if err := r.replayMember(ctx, m, &rows, &rankings); err != nil {
			return err
		}
		r.leaveToRivals(m)
	}
	return r.replayTraces(ctx, order)
}

// chooseMinutes sets r.counted and r.keyed: the policies whose counts by minute are read, and
// those whose rankings of keys are read too.
func (r *run) chooseMinutes() {
	add := func(list *[]string, slug string) {
		if !slices.Contains(*list, slug) {
			*list = append(*list, slug)
		}
	}
	for i := range r.verdicts {
		v := &r.verdicts[i]
		if v.how != howReplayed {
			continue
		}
		source := &r.published.policies[v.source]
		add(&r.counted, source.Slug)
		if len(source.CountBy) > 0 {
			add(&r.keyed, source.Slug)
		}
	}
	for i := range r.published.policies {
		if p := &r.published.policies[i]; len(r.keyed) > 0 && p.Mode.InForce() {
			add(&r.counted, p.Slug)
		}
	}
}

// partFromTotals returns the part of one tenant for policy i of the draft, computed from the sums of
// the time range. It does not replay requests.
func (r *run) partFromTotals(m *member, i int) part {
	v := &r.verdicts[i]
	if v.source < 0 {
		return counted(0, 0)
	}
	c := m.counts(r.published.policies[v.source].Slug)
	switch v.how {
	case howCounted:
		return counted(c.Requests, c.Limited())
	case howShadow:
		return counted(c.Requests, c.ShadowRefused)
	case howReplayed:
		if c.Requests > 0 {
			return unread(c, unreadMany)
		}
	}
	return counted(c.Requests, 0)
}

// replayMember replays the counts by minute of one tenant. rows and rankings are the numbers of
// rows and rankings that the preview may still read. If they are used up, replayMember does
// nothing.
func (r *run) replayMember(ctx context.Context, m *member, rows, rankings *int) error {
	asked := false
	for i := range r.verdicts {
		v := &r.verdicts[i]
		if v.how != howReplayed {
			continue
		}
		source := &r.published.policies[v.source]
		c := m.counts(source.Slug)
		switch {
		case c.Requests == 0:
			m.parts[i] = counted(0, 0)
		case !costsOne(c, source.Mode):
			m.parts[i] = unread(c, unreadCost)
		default:
			asked = true
		}
	}
	if !asked || *rows <= 0 {
		return nil
	}
	var mins *minutes
	for i := range r.verdicts {
		v, p := &r.verdicts[i], &m.parts[i]
		if v.how != howReplayed || p.unread != unreadMany {
			continue
		}
		slug := r.published.policies[v.source].Slug
		overrides, every, err := r.service.overrides(ctx, &m.Tenant, slug)
		if err != nil {
			return err
		}
		if every {
			*p = unread(m.counts(slug), unreadOverrides)
			continue
		}
		if mins == nil {
			var read int
			if mins, read, err = r.readMinutes(ctx, m.Number); err != nil {
				return err
			}
			*rows -= read
		}
		if *p, err = r.replayPart(ctx, m, mins, i, m.counts(slug), rankings, overrides); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) replayPart(
	ctx context.Context, m *member, mins *minutes, i int, c *metrics.Counts, rankings *int, overrides overridesOf,
) (part, error) {
	v := &r.verdicts[i]
	source, limits := &r.published.policies[v.source], r.draft.policies[i].Limits
	used := mins.since(r.cuts[source.Slug].at)
	if len(source.CountBy) == 0 {
		return used.replayTenant(limits, source.Slug, c.Requests), nil
	}
	if len(overrides.list) == 0 && canRefuse(limits, used.series(source.Slug, all)) == 0 {
		return counted(c.Requests, 0), nil // not even if all requests had the same key would a limit deny one
	}
	if mins.keyed == nil {
		read, err := r.readKeys(ctx, m.Number, mins, *rankings)
		if err != nil {
			return part{}, err
		}
		*rankings -= read
	}
	if mins.keyed == nil {
		return unread(c, unreadMany), nil
	}
	return mins.since(r.cuts[source.Slug].at).replayKeys(limits, source, &r.published, m.Slug, c.Requests, overrides), nil
}

// partlyKnown reports whether it is unknown how many requests policy i of the draft would deny in some
// part of the time range, because it needs shadow or its counts are cut.
func (r *run) partlyKnown(i int) bool {
	v := &r.verdicts[i]
	switch {
	case v.how == howNone:
		return true
	case v.source < 0 || v.how == howZero:
		return false
	}
	return r.countsFrom(r.published.policies[v.source].Slug).After(r.preview.From)
}

// leaveToRivals lowers the lower bound of each policy by the number of denials that its rivals
// may cause before it. Then it moves each estimate that is not between its bounds to the nearer
// bound.
func (r *run) leaveToRivals(m *member) {
	for i := range r.verdicts {
		v, p := &r.verdicts[i], &m.parts[i]
		if v.how != howReplayed {
			continue
		}
		p.floor = p.low
		if r.draft.policies[i].Mode == enforcement.PolicyShadow && m.NoPolicy == tenants.Deny {
			p.low = 0 // requests to which no enforced policy applies are denied before the shadow policy counts them
		}
		for _, rival := range v.rivals {
			if r.partlyKnown(rival) {
				p.low = 0
			}
			p.low = max(0, p.low-m.parts[rival].high)
		}
		p.low = min(p.low, p.high)
		p.refused = min(max(p.refused, p.low), p.high)
	}
}
