package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/headgate/headgate/audit"
)

const entryColumns = `id, at, revision, actor_kind, actor_id, actor_name, request_id, address,
	tenant_id, action, object, object_name, before_doc, after_doc`

func scanEntry(r row) (audit.Entry, error) {
	var e audit.Entry
	var tenantID, before, after sql.NullString
	err := r.Scan(&e.ID, &e.At, &e.Revision, &e.Actor.Kind, &e.Actor.ID, &e.Actor.Name, &e.Origin.RequestID, &e.Origin.Address,
		&tenantID, &e.Action, &e.Object, &e.ObjectName, &before, &after)
	e.At, e.TenantID = e.At.UTC(), tenantID.String
	if before.Valid {
		e.Before = json.RawMessage(before.String)
	}
	if after.Valid {
		e.After = json.RawMessage(after.String)
	}
	return e, err
}

// writeLine adds a line of the edit. Without an actor it is whoever ctx says.
func (e *edit) writeLine(ctx context.Context, l *audit.Entry) error {
	id, err := newID("")
	if err != nil {
		return err
	}
	if l.Actor.Kind == "" {
		l.Actor, l.Origin = audit.Who(ctx)
	}
	_, err = e.exec(ctx, `
		INSERT INTO audit_log (`+entryColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		id, e.at, e.revision, l.Actor.Kind, l.Actor.ID, l.Actor.Name, l.Origin.RequestID, l.Origin.Address,
		sql.NullString{String: l.TenantID, Valid: l.TenantID != ""}, l.Action, l.Object, l.ObjectName,
		text(l.Before), text(l.After))
	return err
}

func text(document json.RawMessage) sql.NullString {
	return sql.NullString{String: string(document), Valid: document != nil}
}

// AuditEntries gives lines newest first: in the order of their edits, whatever
// the nodes' clocks said.
func (s *Store) AuditEntries(ctx context.Context, f audit.Filter) ([]audit.Entry, error) {
	var where filter
	if f.TenantID != "" {
		where.and(`tenant_id = ?`, f.TenantID)
	}
	if f.Action != "" {
		where.and(`action = ?`, f.Action)
	}
	if f.Object != "" {
		where.and(`object = ?`, f.Object)
	}
	if !f.From.IsZero() {
		where.and(`at >= ?`, stored(f.From))
	}
	if !f.To.IsZero() {
		where.and(`at < ?`, stored(f.To))
	}
	if f.After != "" {
		where.and(`(revision, id) < (SELECT revision, id FROM audit_log WHERE id = ?)`, f.After)
	}
	query := `
		SELECT ` + entryColumns + `
		FROM audit_log ` + where.where() + `
		ORDER BY revision DESC, id DESC ` + where.limit(f.Limit)
	var list []audit.Entry
	err := s.read(ctx, func(ctx context.Context) error {
		rows, err := s.reader.QueryContext(ctx, query, where.args...)
		list, err = collect(rows, err, scanEntry)
		return err
	})
	return list, s.fail(err, "list audit entries")
}
