package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/audit"
)

const entryColumns = `id, at, revision, actor_kind, actor_id, actor_name, request_id, address,
	tenant_id, action, object, object_name, before_doc, after_doc, seq, hash`

func scanEntry(r row) (audit.Entry, error) {
	var e audit.Entry
	var tenantID, before, after sql.NullString
	var seq sql.NullInt64
	var hash []byte
	err := r.Scan(&e.ID, &e.At, &e.Revision, &e.Actor.Kind, &e.Actor.ID, &e.Actor.Name, &e.Origin.RequestID, &e.Origin.Address,
		&tenantID, &e.Action, &e.Object, &e.ObjectName, &before, &after, &seq, &hash)
	e.At, e.TenantID, e.Seq = e.At.UTC(), tenantID.String, seq.Int64
	copy(e.Hash[:], hash)
	if before.Valid {
		e.Before = json.RawMessage(before.String)
	}
	if after.Valid {
		e.After = json.RawMessage(after.String)
	}
	return e, err
}

// writeLines appends the audit lines of the edit to the hash chain. It first locks the row with the
// newest hash, so that only one transaction at a time appends lines.
func (e *edit) writeLines(ctx context.Context) error {
	if len(e.lines) == 0 {
		return nil
	}
	var last int64
	var head []byte
	err := e.tx.QueryRowContext(ctx, `
		UPDATE audit_head SET seq = seq + $1 WHERE id = 1 RETURNING seq, hash`, len(e.lines)).Scan(&last, &head)
	if err != nil {
		return fmt.Errorf("take the head of the chain: %w", err)
	}
	if !e.raises {
		// The revision is read after the row is locked. Otherwise another edit could append its
		// lines between the two steps, and a lower revision would follow a higher one in the chain.
		if err := e.tx.QueryRowContext(ctx, `SELECT n FROM revision WHERE id = 1`).Scan(&e.revision); err != nil {
			return fmt.Errorf("read the revision: %w", err)
		}
	}
	var hash audit.Hash
	copy(hash[:], head)
	var values []any
	for i := range e.lines {
		l := &e.lines[i]
		if err := e.complete(ctx, l); err != nil {
			return err
		}
		l.Seq = last - int64(len(e.lines)-1-i)
		l.Hash = l.Sum(hash)
		hash = l.Hash
		values = append(values, l.ID, l.At, l.Revision, l.Actor.Kind, l.Actor.ID, l.Actor.Name, l.Origin.RequestID, l.Origin.Address,
			orNull(l.TenantID), l.Action, l.Object, l.ObjectName, text(l.Before), text(l.After), l.Seq, l.Hash[:])
	}
	if err := e.insert(ctx, `INSERT INTO audit_log (`+entryColumns+`)`, 16, values, ``); err != nil {
		return err
	}
	if _, err := e.exec(ctx, `UPDATE audit_head SET hash = $1 WHERE id = 1`, hash[:]); err != nil {
		return fmt.Errorf("move the head of the chain: %w", err)
	}
	return nil
}

// complete sets the ID, the time, and the other fields of an audit line whose values only the store
// has. If the line has no actor, complete sets the actor of ctx.
func (e *edit) complete(ctx context.Context, l *audit.Entry) (err error) {
	l.ID = audit.NewID()
	if l.Actor.Kind == "" {
		l.Actor, l.Origin = audit.Who(ctx)
	}
	l.At, l.Revision = e.now, e.revision
	for _, word := range []*string{
		&l.Actor.Kind, &l.Actor.ID, &l.Actor.Name, &l.Origin.RequestID, &l.Origin.Address, &l.Action, &l.Object, &l.ObjectName,
	} {
		*word = audit.Clean(*word)
	}
	return nil
}

// WriteAudit adds an audit line about an event that changes no stored object, such as a failed
// sign-in.
func (s *Store) WriteAudit(ctx context.Context, e audit.Entry) error {
	err := s.aside(ctx, e, func(context.Context, *edit) error { return nil })
	return s.fail(err, "write an audit line of %s", e.Action)
}

// orNull returns the value for a column that is NULL if the text is "".
func orNull(text string) sql.NullString {
	return sql.NullString{String: text, Valid: text != ""}
}

func text(document json.RawMessage) sql.NullString {
	return sql.NullString{String: string(document), Valid: document != nil}
}

// AuditEntries returns the audit lines that match f, newest first. Lines are ordered by revision,
// because the clocks of the nodes may differ. A line without an edit has the revision of the last
// edit before it, and comes after the lines of that edit. Lines with equal revisions are ordered by
// ID.
func (s *Store) AuditEntries(ctx context.Context, f audit.Filter) ([]audit.Entry, error) {
	where := narrowed(f)
	list, err := queryPage(ctx, s, scanEntry, page{entryColumns, `audit_log`, where, `revision DESC, id DESC`, f.Limit})
	return list, s.fail(err, "list audit entries")
}

// eventActions is an SQL condition that is true for events. It must be the same text as the
// condition of the partial indexes of events.
var eventActions = `action IN ('` + strings.Join(audit.EventActions[:], `', '`) + `')`

// AuditEvents returns the events that match f, newest first.
func (s *Store) AuditEvents(ctx context.Context, f audit.EventFilter) ([]audit.Event, error) {
	where := filter{conditions: []string{eventActions}}
	if f.TenantID != "" {
		where.and(`tenant_id = ?`, f.TenantID)
	}
	if f.Plan != "" {
		where.conditions = append(where.conditions, `tenant_id IS NULL`)
		where.and(`object_name = ?`, f.Plan)
	}
	where.and(`at >= ?`, stored(f.From))
	where.and(`at < ?`, stored(f.To))
	list, err := queryPage(ctx, s, scanEvent, page{`id, at, tenant_id, action, object_name`, `audit_log`, where, `at DESC, id DESC`, f.Limit})
	return list, s.fail(err, "list events")
}

func scanEvent(r row) (e audit.Event, err error) {
	var tenantID sql.NullString
	err = r.Scan(&e.ID, &e.At, &tenantID, &e.Action, &e.ObjectName)
	e.At, e.TenantID = e.At.UTC(), tenantID.String
	return e, err
}

// narrowed returns a WHERE clause with the conditions of the filter f.
func narrowed(f audit.Filter) (where filter) {
	for _, column := range []struct{ condition, value string }{
		{`id = ?`, f.ID},
		{`tenant_id = ?`, f.TenantID},
		{`action = ?`, f.Action},
		{`object = ?`, f.Object},
		{`(revision, id) < (SELECT revision, id FROM audit_log WHERE id = ?)`, f.After},
	} {
		if column.value != "" {
			where.and(column.condition, column.value)
		}
	}
	if f.Group != "" {
		where.and(`action LIKE ? ESCAPE '\'`, escaped(f.Group)+".%")
	}
	if f.Named != "" {
		where.and(`(object = ? OR object_name = ?)`, f.Named, f.Named)
	}
	if f.Actor != "" {
		// SQLite's lower() changes only ASCII letters. Therefore the second LIKE compares the name
		// with the search text as the user typed it.
		where.and(`(actor_id = ? OR lower(actor_name) LIKE ? ESCAPE '\' OR actor_name LIKE ? ESCAPE '\')`,
			f.Actor, contains(f.Actor), "%"+escaped(f.Actor)+"%")
	}
	if !f.From.IsZero() {
		where.and(`at >= ?`, stored(f.From))
	}
	if !f.To.IsZero() {
		where.and(`at < ?`, stored(f.To))
	}
	return where
}

// verifyPage is the number of audit lines that VerifyAudit reads with one query.
const verifyPage = 1000

// VerifyAudit verifies the hash chain of the audit log. It reads all lines in one transaction, so
// that a line that is added meanwhile does not appear as a fault.
func (s *Store) VerifyAudit(ctx context.Context, how audit.Verification) (audit.Verdict, error) {
	v, err := s.verifyAudit(ctx, how)
	return v, s.fail(err, "verify the audit log")
}

// AuditHead returns the sequence number and the hash of the newest audit line.
func (s *Store) AuditHead(ctx context.Context) (h audit.Head, err error) {
	var hash []byte
	err = s.reader.QueryRowContext(ctx, auditHead).Scan(&h.Seq, &hash, &h.Outside)
	copy(h.Hash[:], hash)
	return h, s.fail(err, "read the head of the audit log")
}

const auditHead = `SELECT seq, hash, outside FROM audit_head WHERE id = 1`

func (s *Store) verifyAudit(ctx context.Context, how audit.Verification) (audit.Verdict, error) {
	tx, err := s.reader.BeginTx(ctx, s.engine.oneMoment())
	if err != nil {
		return audit.Verdict{}, err
	}
	defer tx.Rollback()
	var head audit.Head
	var hash []byte
	err = tx.QueryRowContext(ctx, auditHead).Scan(&head.Seq, &hash, &head.Outside)
	if errors.Is(err, sql.ErrNoRows) {
		return audit.Verdict{Broken: &audit.Broken{What: "have no head: it was removed"}}, nil
	}
	if err != nil {
		return audit.Verdict{}, err
	}
	copy(head.Hash[:], hash)
	walk := audit.Walk{Noted: how.Noted}
	if err := walkLines(ctx, tx, &walk, how.Seen); err != nil {
		return audit.Verdict{}, err
	}
	var outside int64
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM audit_log WHERE seq IS NULL`).Scan(&outside); err != nil {
		return audit.Verdict{}, err
	}
	return walk.End(head, outside), nil
}

// walkLines verifies the audit lines in order. It stops at the first line that does not match the
// chain.
func walkLines(ctx context.Context, tx *sql.Tx, walk *audit.Walk, seen func(seq int64)) error {
	for after := int64(0); ; {
		rows, err := tx.QueryContext(ctx, `
			SELECT `+entryColumns+`
			FROM audit_log
			WHERE seq > $1
			ORDER BY seq
			LIMIT $2`, after, verifyPage)
		page, err := collect(rows, err, scanEntry)
		if err != nil {
			return err
		}
		for i := range page {
			if !walk.Next(&page[i]) {
				return nil
			}
			after = page[i].Seq
		}
		if seen != nil {
			seen(after)
		}
		if len(page) < verifyPage {
			return nil
		}
	}
}
