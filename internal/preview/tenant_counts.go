package preview

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/tenants"
)

const tenantPage = 1000

// readTenants reads the tenants of the plan, up to maxTenants. It leaves out tenants that
// changed to the plan within the time range and counts them in Joined.
func (r *run) readTenants(ctx context.Context) error {
	p := &r.preview
	if p.Published == 0 {
		return nil
	}
	// This query finds the latest audit line before the time range. Its revision is the latest
	// one before the time range.
	lines, err := r.service.c.Audit.AuditEntries(ctx, audit.Filter{To: p.From, Limit: 1})
	if err != nil {
		return err
	}
	before := int64(0)
	if len(lines) > 0 {
		before = lines[0].Revision
	}
	f := tenants.Filter{Plan: p.Plan.Slug, Limit: tenantPage}
	for p.Tenants+p.Joined < maxTenants {
		list, err := r.service.c.Tenants.Tenants(ctx, f)
		if err != nil {
			return err
		}
		for i := range list {
			joined, err := r.joined(ctx, &list[i], before)
			if err != nil {
				return err
			}
			if joined {
				p.Joined++
				continue
			}
			p.Tenants++
			r.members = append(r.members, &member{Tenant: list[i], parts: make([]part, len(r.draft.policies))})
		}
		if len(list) < tenantPage {
			return nil
		}
		f.After = list[len(list)-1].ID
	}
	p.Left = max(0, p.Plan.Tenants-p.Tenants-p.Joined)
	return nil
}

// joined reports whether a tenant changed to the plan after the revision before. A tenant that
// was created with the plan did not change, because no other plan decided its requests.
func (r *run) joined(ctx context.Context, t *tenants.Tenant, before int64) (bool, error) {
	if t.PlanRevision <= before {
		return false, nil
	}
	if t.Revision == t.PlanRevision && t.CreatedAt.Equal(t.UpdatedAt) {
		return false, nil // created with this plan
	}
	lines, err := r.service.c.Audit.AuditEntries(ctx, audit.Filter{Object: t.ID, Action: "tenant.create", Limit: 1})
	return len(lines) == 0 || lines[0].Revision != t.PlanRevision, err
}

// readSums reads the counts of every tenant for the whole time range. It stores them in r, in
// the data of each tenant.
func (r *run) readSums(ctx context.Context) error {
	p := &r.preview
	if len(r.members) == 0 || !p.To.After(p.From) {
		return nil
	}
	byNumber := make(map[uint32]*member, len(r.members))
	numbers := make([]uint32, len(r.members))
	for i, m := range r.members {
		numbers[i], byNumber[m.Number] = m.Number, m
	}
	var totals, rows []metrics.CountRow
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() {
		totals, _, errs[0] = r.service.c.Analytics.Sums(ctx, metrics.SumQuery{From: p.From, To: p.To, Tenants: numbers, Kind: metrics.KindTotal})
	})
	both.Go(func() {
		rows, _, errs[1] = r.service.c.Analytics.Sums(ctx, metrics.SumQuery{From: p.From, To: p.To, Tenants: numbers, Kind: metrics.KindPolicy})
	})
	both.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return err
	}
	for i := range totals {
		c := &totals[i].Counts
		byNumber[totals[i].Tenant].total = *c
		p.Requests, p.Refused = p.Requests+c.Requests, p.Refused+c.Limited()
		if c.Requests > 0 {
			p.Active++
		}
	}
	for i := range rows {
		m := byNumber[rows[i].Tenant]
		if m.policies == nil {
			m.policies = make(map[string]*metrics.Counts)
		}
		m.policies[rows[i].Name] = &rows[i].Counts
	}
	return r.readCutSums(ctx, numbers, byNumber)
}

// readCutSums replaces the sums of policies whose counts are cut by those since the cut.
func (r *run) readCutSums(ctx context.Context, numbers []uint32, byNumber map[uint32]*member) error {
	slugs := make(map[time.Time][]string)
	for slug, c := range r.cuts {
		if c.at.After(r.preview.From) {
			slugs[c.at] = append(slugs[c.at], slug)
		}
	}
	for at, list := range slugs {
		for _, m := range r.members {
			for _, slug := range list {
				delete(m.policies, slug)
			}
		}
		if !r.preview.To.After(at) {
			continue
		}
		rows, _, err := r.service.c.Analytics.Sums(ctx, metrics.SumQuery{
			From: at, To: r.preview.To, Tenants: numbers, Kind: metrics.KindPolicy, Names: list,
		})
		if err != nil {
			return err
		}
		for i := range rows {
			byNumber[rows[i].Tenant].policies[rows[i].Name] = &rows[i].Counts
		}
	}
	return nil
}

// counts returns the tenant's counts of the published policy with this slug. If the tenant has
// none, all counts are zero.
func (m *member) counts(policy string) *metrics.Counts {
	if c := m.policies[policy]; c != nil {
		return c
	}
	return new(metrics.Counts)
}
