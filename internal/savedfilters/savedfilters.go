// Package savedfilters manages the named filters of pages of the dashboard. A saved filter belongs
// to a person. Its owner can share it with everybody who may see the page.
package savedfilters

import (
	"context"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Bounds of saved filters.
const (
	// MaxOwn is the maximum number of filters of one person, on all pages. MaxShared is the maximum
	// number of shared filters of one page, of the operator or of one tenant.
	MaxOwn    = 200
	MaxShared = 100
	// MaxName is the maximum length of a name in characters, and maxQuery is the maximum length of
	// a query in bytes.
	MaxName  = 60
	maxQuery = 2048
)

// A Place is a page that has filters. Page is the name of the page. TenantID is the tenant to which
// the page belongs, or "" for a page of the operator.
type Place struct{ TenantID, Page string }

// A Document is the part of a Filter that people write. The audit log contains it as this JSON.
type Document struct {
	Name  string `json:"name"`
	Page  string `json:"page"`
	Query string `json:"query"` // the parameters of the page
	// Shared says that everybody who may see the page sees the filter.
	Shared bool `json:"shared"`
}

// A Filter is a saved filter.
type Filter struct {
	ID       string // UUIDv7
	TenantID string // of the place
	OwnerID  string // the person whose filter it is
	Document
	CreatedAt time.Time
}

// A Store stores filters. All methods that change a filter return problem.NotFound if the filter
// does not exist. The audit entry is nil if the change affects only the owner of the filter.
type Store interface {
	// SavedFilters lists the filters of a place that a person sees, ordered by name: the person's
	// own filters and the shared filters.
	SavedFilters(ctx context.Context, p Place, userID string) ([]Filter, error)
	// SavedFiltersOf lists the filters of all places that a person sees. If tenantID is not "", it
	// lists only the filters of places of this tenant.
	SavedFiltersOf(ctx context.Context, tenantID, userID string) ([]Filter, error)
	// SavedFilter returns a filter of a place. It does not check whether the person may see the
	// filter.
	SavedFilter(ctx context.Context, p Place, id string) (Filter, error)
	// CreateSavedFilter adds a filter. The error is problem.Conflict with the code
	// too_many_saved_filters.
	CreateSavedFilter(ctx context.Context, f Filter, e *audit.Entry) error
	// ChangeSavedFilter changes the name of a filter, and whether it is shared. The error can also
	// be that of CreateSavedFilter.
	ChangeSavedFilter(ctx context.Context, f Filter, e *audit.Entry) error
	DeleteSavedFilter(ctx context.Context, f Filter, e *audit.Entry) error
}

// Config configures a Service.
type Config struct {
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// A Service lists, saves and changes filters. The caller checks that the person may see the place.
// A Service is safe for concurrent use.
type Service struct {
	store Store
	now   func() time.Time
}

// NewService returns a Service that stores filters in s.
func NewService(s Store, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{s, cfg.Now}
}

// Filters lists the filters of a place that a person sees, ordered by name.
func (s *Service) Filters(ctx context.Context, p Place, userID string) ([]Filter, error) {
	return s.store.SavedFilters(ctx, p, userID)
}

// All lists the filters of all places that a person sees. If tenantID is not "", it lists only the
// filters of places of this tenant.
func (s *Service) All(ctx context.Context, tenantID, userID string) ([]Filter, error) {
	return s.store.SavedFiltersOf(ctx, tenantID, userID)
}

// Filter returns a filter. If the person does not see the filter, the error is problem.NotFound.
func (s *Service) Filter(ctx context.Context, p Place, userID, id string) (Filter, error) {
	f, err := s.store.SavedFilter(ctx, p, id)
	if err == nil && f.OwnerID != userID && !f.Shared {
		err = problem.New(problem.NotFound, "no such saved filter")
	}
	return f, err
}

// Save adds a filter of a person. Errors: problem.Invalid; problem.Conflict with the code
// too_many_saved_filters.
func (s *Service) Save(ctx context.Context, p Place, userID string, d Document) (Filter, error) {
	d.Page = p.Page
	if err := d.validate(); err != nil {
		return Filter{}, err
	}
	f := Filter{ID: audit.NewID(), TenantID: p.TenantID, OwnerID: userID, Document: d, CreatedAt: s.now().UTC().Truncate(time.Microsecond)}
	return f, s.store.CreateSavedFilter(ctx, f, entry(ctx, "saved_filter.share", nil, &f))
}

// Change changes the name of a filter, and whether it is shared. Only the owner may do this;
// otherwise the error is problem.Forbidden. The other errors are those of Save and Filter.
func (s *Service) Change(ctx context.Context, p Place, userID, id, name string, shared bool) (Filter, error) {
	before, err := s.Filter(ctx, p, userID, id)
	if err != nil {
		return Filter{}, err
	}
	if before.OwnerID != userID {
		return Filter{}, problem.New(problem.Forbidden, "only its owner can change a saved filter")
	}
	f := before
	f.Name, f.Shared = name, shared
	if err := f.validate(); err != nil {
		return Filter{}, err
	}
	action := "saved_filter.change"
	switch {
	case shared && !before.Shared:
		action = "saved_filter.share"
	case !shared && before.Shared:
		action = "saved_filter.unshare"
	}
	return f, s.store.ChangeSavedFilter(ctx, f, entry(ctx, action, &before, &f))
}

// Delete removes a filter. The owner of the filter may do this. If moderates is true, the person
// may also remove shared filters of other people. In all other cases, the error is
// problem.Forbidden.
func (s *Service) Delete(ctx context.Context, p Place, userID, id string, moderates bool) error {
	f, err := s.Filter(ctx, p, userID, id)
	if err != nil {
		return err
	}
	if f.OwnerID != userID && !moderates {
		return problem.New(problem.Forbidden, "only its owner can delete a saved filter")
	}
	return s.store.DeleteSavedFilter(ctx, f, entry(ctx, "saved_filter.delete", &f, nil))
}

func (d *Document) validate() error {
	var f problem.Fields
	f.Line("/name", d.Name, 1, MaxName)
	if _, err := url.ParseQuery(d.Query); err != nil || len(d.Query) > maxQuery {
		f.Add("/query", "must be a query of at most %d bytes", maxQuery)
	}
	return f.Err()
}

// entry returns the audit entry of a change to a shared filter. It returns nil if the filter is
// personal before and after the change.
func entry(ctx context.Context, action string, before, after *Filter) *audit.Entry {
	var was, is any
	of := before
	if before != nil && before.Shared {
		was = before.Document
	}
	if after != nil {
		of = after
		if after.Shared {
			is = after.Document
		}
	}
	if was == nil && is == nil {
		return nil
	}
	e := audit.Complete(ctx, audit.Entry{TenantID: of.TenantID, Action: action, Object: of.ID, ObjectName: of.Name}, was, is)
	return &e
}
