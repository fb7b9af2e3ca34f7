package configuration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A Store runs several changes in one transaction.
type Store interface {
	// Together runs work in one transaction with one revision. If work returns an error, no
	// change is made.
	Together(ctx context.Context, work func(ctx context.Context) error) error
	// Exceptions returns the overrides and the list entries of all tenants, including expired
	// ones.
	Exceptions(ctx context.Context) ([]exceptions.Override, []exceptions.Entry, error)
}

// Config contains the services that a Service calls. All fields except Now are required.
type Config struct {
	Store      Store
	Plans      *plans.Service
	Tenants    *tenants.Service
	Exceptions *exceptions.Service
	Preview    *preview.Service
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// A Service exports and applies documents. It is safe for concurrent use.
type Service struct{ c Config }

// NewService returns a Service.
func NewService(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{c}
}

// Options control Apply.
type Options struct {
	// DryRun makes Apply compute the result and change nothing.
	DryRun bool
	// Prune makes Apply delete the existing objects that the document does not contain. Without
	// Prune, Apply only reports them in Result.Unmanaged.
	Prune bool
}

// A Result says what Apply has changed. With Options.DryRun, it says what Apply would change.
type Result struct {
	// Changes are the differences between the existing objects and the document. The field
	// Field of each is a JSON pointer into the document. In place of an index, the pointer
	// contains the slug of a policy and the name of a limit. For an override or list entry, the
	// last part is "-", as in "/tenants/acme/overrides/-".
	Changes []plans.Change
	// Unmanaged are the existing objects that the document does not contain. With Options.Prune,
	// Unmanaged is empty, and Changes contains the deletion of these objects.
	Unmanaged []plans.Change
	// Expired contains the JSON pointers of those overrides and list entries of the document
	// that have already expired. Apply ignores them.
	Expired []string
	// Previews contains a preview for each changed plan. The preview says how many counted requests
	// of the plan's tenants the new version would have denied.
	Previews []preview.Preview
}

// errDryRun is the error that a dry run returns to Together, so that Together rolls back the
// transaction.
var errDryRun = errors.New("dry run")

// Export returns a document with all existing objects. It leaves out plans without a published
// version, and expired overrides and list entries.
func (s *Service) Export(ctx context.Context) (Document, error) {
	var d Document
	err := s.c.Store.Together(ctx, func(ctx context.Context) error {
		e, err := s.existing(ctx)
		if err != nil {
			return err
		}
		d = Document{Plans: make(map[string]plans.Document), Tenants: make(map[string]Tenant, len(e.tenants))}
		for slug, p := range e.plans {
			if p.Published > 0 {
				d.Plans[slug] = p.document
			}
		}
		for slug, t := range e.tenants {
			out := Tenant{Document: t.Document, Overrides: []exceptions.NewOverride{}, Lists: []exceptions.NewEntry{}}
			for _, o := range e.overrides[t.ID] {
				out.Overrides = append(out.Overrides, overrideOf(o))
			}
			for _, l := range e.entries[t.ID] {
				out.Lists = append(out.Lists, entryOf(l))
			}
			d.Tenants[slug] = out
		}
		return nil
	})
	return d, err
}

// Apply changes the stored objects so that they equal the document. If there is an error, it
// changes nothing. If the document has faults, the error is problem.Invalid, with a JSON pointer
// for each fault. It can also be problem.Conflict.
func (s *Service) Apply(ctx context.Context, d Document, how Options) (Result, error) {
	if err := s.validate(d); err != nil {
		return Result{}, err
	}
	previews, err := s.previews(ctx, d)
	if err != nil {
		return Result{}, err
	}
	var result Result
	err = s.c.Store.Together(ctx, func(ctx context.Context) error {
		a := &application{service: s, document: d, options: how, now: s.c.Now()}
		if err := a.run(ctx); err != nil {
			return err
		}
		result = a.result
		if how.DryRun {
			return errDryRun
		}
		return nil
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	result.Previews = previews
	return result, err
}

// previews returns a preview for each published plan that differs from the document. It leaves
// out invalid plans, because the transaction rejects them. It runs before the transaction,
// because it may take seconds.
func (s *Service) previews(ctx context.Context, d Document) ([]preview.Preview, error) {
	var list []preview.Preview
	for _, slug := range slices.Sorted(maps.Keys(d.Plans)) {
		p, err := s.c.Plans.Plan(ctx, slug)
		if problem.Is(err, problem.NotFound) || err == nil && p.Published == 0 || len(s.c.Plans.Inspect(d.Plans[slug]).Faults) > 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		v, err := s.c.Plans.Version(ctx, p.ID, p.Published)
		if err != nil {
			return nil, err
		}
		if diff, err := plans.Compare(v.Document, d.Plans[slug]); err != nil || diff.Empty() {
			continue
		}
		shown, err := s.c.Preview.Document(ctx, slug, d.Plans[slug])
		if err != nil {
			return nil, fmt.Errorf("preview plan %s: %w", slug, err)
		}
		list = append(list, shown)
	}
	return list, nil
}

// validate returns those faults of the document that it finds without the existing objects.
func (s *Service) validate(d Document) error {
	var f problem.Fields
	for _, slug := range slices.Sorted(maps.Keys(d.Plans)) {
		f.NewSlug("/plans/"+problem.Escape(slug), slug)
	}
	for _, slug := range slices.Sorted(maps.Keys(d.Tenants)) {
		at, t := "/tenants/"+problem.Escape(slug), d.Tenants[slug]
		f.NewSlug(at, slug)
		if faults, ok := under(at, tenants.Validate(tenants.Normalise(t.Document))); ok {
			f = append(f, faults...)
		}
		for i, o := range t.Overrides {
			if o.ExpiresAt.IsZero() {
				f.Add(fmt.Sprintf("%s/overrides/%d/expires_at", at, i), "is required: an override ends, and each apply would set another end")
			}
		}
		first := make(map[[3]string]int, len(t.Lists))
		for i := range t.Lists {
			value := valueOf(canonicalEntry(t.Lists[i]))
			if j, twice := first[value]; twice {
				f.Add(fmt.Sprintf("%s/lists/%d/value", at, i), "is on the list already: see /lists/%d", j)
			}
			first[value] = i
		}
	}
	return f.Err()
}

// existing contains all existing objects. The keys are slugs for plans and tenants, and tenant
// IDs for exceptions.
type existing struct {
	plans     map[string]planNow
	tenants   map[string]tenants.Tenant
	overrides map[string][]exceptions.Override // oldest first; without expired overrides
	entries   map[string][]exceptions.Entry
}

// A planNow is an existing plan with its published document.
type planNow struct {
	plans.Plan
	document plans.Document
}

// pageSize is the number of rows that one query reads.
const pageSize = 1000

func (s *Service) existing(ctx context.Context) (*existing, error) {
	e := &existing{plans: map[string]planNow{}, tenants: map[string]tenants.Tenant{}}
	for after := ""; ; {
		list, err := s.c.Plans.Plans(ctx, plans.Filter{After: after, Limit: pageSize})
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			now := planNow{Plan: p}
			if p.Published > 0 {
				v, err := s.c.Plans.Version(ctx, p.ID, p.Published)
				if err != nil {
					return nil, err
				}
				now.document = v.Document
			}
			e.plans[p.Slug], after = now, p.ID
		}
		if len(list) < pageSize {
			break
		}
	}
	for after := ""; ; {
		list, err := s.c.Tenants.Tenants(ctx, tenants.Filter{After: after, Limit: pageSize})
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			e.tenants[t.Slug], after = t, t.ID
		}
		if len(list) < pageSize {
			break
		}
	}
	return e, s.exceptions(ctx, e)
}

// exceptions adds the existing overrides and list entries to e. It leaves out expired ones.
func (s *Service) exceptions(ctx context.Context, e *existing) error {
	overrides, entries, err := s.c.Store.Exceptions(ctx)
	if err != nil {
		return err
	}
	now := s.c.Now()
	slices.SortFunc(overrides, func(a, b exceptions.Override) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(entries, func(a, b exceptions.Entry) int {
		return cmp.Or(cmp.Compare(a.List, b.List), cmp.Compare(a.Attribute, b.Attribute), cmp.Compare(a.Value, b.Value))
	})
	e.overrides, e.entries = map[string][]exceptions.Override{}, map[string][]exceptions.Entry{}
	for _, o := range overrides {
		if o.ExpiresAt.After(now) {
			e.overrides[o.TenantID] = append(e.overrides[o.TenantID], o)
		}
	}
	for _, l := range entries {
		if l.ExpiresAt.IsZero() || l.ExpiresAt.After(now) {
			e.entries[l.TenantID] = append(e.entries[l.TenantID], l)
		}
	}
	return nil
}

func problemOf(err error) *problem.Problem {
	var p *problem.Problem
	errors.As(err, &p)
	return p
}
