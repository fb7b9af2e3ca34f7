package store

import (
	"context"
	"database/sql"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/savedfilters"
)

var _ savedfilters.Store = (*Store)(nil)

const savedFilterColumns = `id, tenant_id, owner_id, page, name, query, shared, created_at`

func scanSavedFilter(r row) (f savedfilters.Filter, err error) {
	var tenantID sql.NullString
	err = r.Scan(&f.ID, &tenantID, &f.OwnerID, &f.Page, &f.Name, &f.Query, &f.Shared, &f.CreatedAt)
	f.TenantID, f.CreatedAt = tenantID.String, f.CreatedAt.UTC()
	return f, err
}

// SavedFilters lists the filters of a place that a person sees, ordered by name.
func (s *Store) SavedFilters(ctx context.Context, p savedfilters.Place, userID string) ([]savedfilters.Filter, error) {
	var where filter
	where.tenant(p.TenantID)
	where.and(`page = ?`, p.Page)
	where.and(`(shared OR owner_id = ?)`, userID)
	list, err := queryPage(ctx, s, scanSavedFilter, page{
		savedFilterColumns, `saved_filters`, where, `LOWER(name), id`, savedfilters.MaxOwn + savedfilters.MaxShared,
	})
	return list, s.fail(err, "list saved filters")
}

// SavedFiltersOf lists the filters of all places that a person sees, ordered by name. If tenantID
// is not "", it lists only the filters of places of this tenant.
func (s *Store) SavedFiltersOf(ctx context.Context, tenantID, userID string) ([]savedfilters.Filter, error) {
	var where filter
	if tenantID != "" {
		where.tenant(tenantID)
	}
	where.and(`(shared OR owner_id = ?)`, userID)
	list, err := queryPage(ctx, s, scanSavedFilter, page{savedFilterColumns, `saved_filters`, where, `LOWER(name), id`, 1000})
	return list, s.fail(err, "list saved filters")
}

// SavedFilter returns a filter of a place.
func (s *Store) SavedFilter(ctx context.Context, p savedfilters.Place, id string) (savedfilters.Filter, error) {
	f, err := queryOne(ctx, s, "saved filter", scanSavedFilter, `
		SELECT `+savedFilterColumns+`
		FROM saved_filters
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND page = $2 AND id = $3`, orNull(p.TenantID), p.Page, id)
	return f, s.fail(err, "load saved filter %s", id)
}

// filterChange runs a change of a filter, with an audit line if e is not nil.
func (s *Store) filterChange(ctx context.Context, e *audit.Entry, change func(ctx context.Context, tx *sql.Tx) error) error {
	if e == nil {
		return s.change(ctx, change)
	}
	return s.aside(ctx, *e, func(ctx context.Context, ed *edit) error { return change(ctx, ed.tx) })
}

// CreateSavedFilter adds a filter.
func (s *Store) CreateSavedFilter(ctx context.Context, f savedfilters.Filter, e *audit.Entry) error {
	err := s.filterChange(ctx, e, func(ctx context.Context, tx *sql.Tx) error {
		// The statement locks the row of the owner, so that two requests of one person count the
		// filters one after the other.
		n, err := execIn(ctx, tx, `UPDATE users SET name = name WHERE id = $1`, f.OwnerID)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "user")
		}
		if err != nil {
			return err
		}
		var own int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM saved_filters WHERE owner_id = $1`, f.OwnerID).Scan(&own); err != nil {
			return err
		}
		if own >= savedfilters.MaxOwn {
			return tooManyFilters("you have %d saved filters, the largest number; delete one first", own)
		}
		if err := roomToShare(ctx, tx, f); err != nil {
			return err
		}
		_, err = execIn(ctx, tx, `
			INSERT INTO saved_filters (`+savedFilterColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			f.ID, orNull(f.TenantID), f.OwnerID, f.Page, f.Name, f.Query, f.Shared, stored(f.CreatedAt))
		return err
	})
	return s.fail(err, "save a filter")
}

func tooManyFilters(format string, n int) error {
	return problem.WithCode(problem.Conflict, "too_many_saved_filters", format, n)
}

// roomToShare returns an error if the filter is shared and its place already has the maximum number
// of other shared filters. Concurrent requests can exceed the maximum by a few.
func roomToShare(ctx context.Context, tx *sql.Tx, f savedfilters.Filter) error {
	if !f.Shared {
		return nil
	}
	var n int
	err := tx.QueryRowContext(ctx, `
		SELECT COUNT(*) FROM saved_filters
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND page = $2 AND shared AND id <> $3`, orNull(f.TenantID), f.Page, f.ID).Scan(&n)
	if err == nil && n >= savedfilters.MaxShared {
		err = tooManyFilters("the page has %d shared filters, the largest number; save it for yourself, or delete one first", n)
	}
	return err
}

// ChangeSavedFilter changes the name of a filter, and whether it is shared.
func (s *Store) ChangeSavedFilter(ctx context.Context, f savedfilters.Filter, e *audit.Entry) error {
	err := s.filterChange(ctx, e, func(ctx context.Context, tx *sql.Tx) error {
		if err := roomToShare(ctx, tx, f); err != nil {
			return err
		}
		n, err := execIn(ctx, tx, `
			UPDATE saved_filters SET name = $4, shared = $5
			WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2 AND owner_id = $3`, orNull(f.TenantID), f.ID, f.OwnerID, f.Name, f.Shared)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "saved filter")
		}
		return err
	})
	return s.fail(err, "change saved filter %s", f.ID)
}

// DeleteSavedFilter removes a filter.
func (s *Store) DeleteSavedFilter(ctx context.Context, f savedfilters.Filter, e *audit.Entry) error {
	err := s.filterChange(ctx, e, func(ctx context.Context, tx *sql.Tx) error {
		n, err := execIn(ctx, tx, `
			DELETE FROM saved_filters
			WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2 AND owner_id = $3`, orNull(f.TenantID), f.ID, f.OwnerID)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "saved filter")
		}
		return err
	})
	return s.fail(err, "delete saved filter %s", f.ID)
}
