package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/sharing"
)

var _ sharing.Store = (*Store)(nil)

const sharedLinkColumns = `id, tenant_id, hash, doc, created_by, created_at, last_used_at`

func scanSharedLink(r row) (sharing.Link, error) {
	l, _, err := scanOpenedLink(r, nil)
	return l, err
}

// scanOpenedLink scans a row with sharedLinkColumns. If content is not nil, it also scans the
// column content, which comes last.
func scanOpenedLink(r row, content *[]byte) (l sharing.Link, _ []byte, err error) {
	var tenantID sql.NullString
	var hash []byte
	var doc, by string
	var used sql.NullTime
	into := []any{&l.ID, &tenantID, &hash, &doc, &by, &l.CreatedAt, &used}
	if content != nil {
		into = append(into, content)
	}
	if err := r.Scan(into...); err != nil {
		return l, nil, err
	}
	l.TenantID, l.CreatedAt, l.LastUsedAt = tenantID.String, l.CreatedAt.UTC(), instant(used)
	copy(l.Hash[:], hash)
	if err := json.Unmarshal([]byte(doc), &l.Document); err != nil {
		return l, nil, fmt.Errorf("read shared link %s: %w", l.ID, err)
	}
	if err := json.Unmarshal([]byte(by), &l.CreatedBy); err != nil {
		return l, nil, fmt.Errorf("read the creator of shared link %s: %w", l.ID, err)
	}
	if content == nil {
		return l, nil, nil
	}
	return l, *content, nil
}

// SharedLinks lists the links of an owner that are valid at now, newest first.
func (s *Store) SharedLinks(ctx context.Context, tenantID string, now time.Time, f sharing.Filter) ([]sharing.Link, error) {
	var where filter
	where.tenant(tenantID)
	where.and(`expires_at > ?`, stored(now))
	if f.After != "" {
		where.and(`id < ?`, f.After)
	}
	list, err := queryPage(ctx, s, scanSharedLink, page{sharedLinkColumns, `shared_links`, where, `id DESC`, f.Limit})
	return list, s.fail(err, "list shared links")
}

// SharedLink returns a link of an owner.
func (s *Store) SharedLink(ctx context.Context, tenantID, id string) (sharing.Link, error) {
	l, err := queryOne(ctx, s, "shared link", scanSharedLink, `
		SELECT `+sharedLinkColumns+`
		FROM shared_links
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
	return l, s.fail(err, "load shared link %s", id)
}

// CreateSharedLink adds a link.
func (s *Store) CreateSharedLink(ctx context.Context, l sharing.Link, content []byte, e audit.Entry) (sharing.Link, error) {
	doc, err := writeJSON(l.Document)
	if err != nil {
		return l, err
	}
	by, err := writeJSON(l.CreatedBy)
	if err != nil {
		return l, err
	}
	err = s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		if err := ed.roomFor(ctx, l.TenantID, `shared_links`, "too_many_shared_links", sharing.MaxLinks); err != nil {
			return err
		}
		_, err := ed.exec(ctx, `
			INSERT INTO shared_links (`+sharedLinkColumns+`, expires_at, content)
			VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $8)`,
			l.ID, orNull(l.TenantID), l.Hash[:], doc, by, stored(l.CreatedAt), stored(l.ExpiresAt), content)
		return err
	})
	return l, s.fail(err, "create a shared link")
}

// DeleteSharedLink removes a link.
func (s *Store) DeleteSharedLink(ctx context.Context, tenantID, id string, e audit.Entry) error {
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		n, err := ed.exec(ctx, `
			DELETE FROM shared_links WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "shared link")
		}
		return err
	})
	return s.fail(err, "delete shared link %s", id)
}

// An openedLink is a link with its content.
type openedLink struct {
	sharing.Link
	content []byte
}

// OpenSharedLink returns the link with the given hash, and its content, if the link is valid at
// now. A second statement stores the time of the use. If this statement fails, OpenSharedLink only
// logs the error.
func (s *Store) OpenSharedLink(ctx context.Context, hash [32]byte, now time.Time) (sharing.Link, []byte, error) {
	now = stored(now)
	o, err := queryOne(ctx, s, "shared link", func(r row) (o openedLink, err error) {
		o.Link, o.content, err = scanOpenedLink(r, &o.content)
		return o, err
	}, `
		SELECT `+sharedLinkColumns+`, content
		FROM shared_links
		WHERE hash = $1 AND expires_at > $2`, hash[:], now)
	if err != nil {
		return sharing.Link{}, nil, s.fail(err, "open a shared link")
	}
	if now.Sub(o.LastUsedAt) > sharing.SeenGranularity {
		if err := s.noteLinkUsed(ctx, o.ID, now); err != nil {
			s.log.WarnContext(ctx, "the time at which a shared link was used could not be stored", "link", o.ID, "error", err)
		}
		o.LastUsedAt = now
	}
	return o.Link, o.content, nil
}

func (s *Store) noteLinkUsed(ctx context.Context, id string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.writer.ExecContext(ctx, `
		UPDATE shared_links SET last_used_at = $2
		WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)`, id, now)
	return err
}
