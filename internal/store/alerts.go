package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

var _ alerts.Store = (*Store)(nil)

// Snapshots do not contain alerts, so most changes of alert objects do not raise the revision (see
// aside). Creations do raise the revision. Only one transaction that raises the revision runs at a
// time, so roomFor counts the rows of an owner correctly.

const ruleColumns = `id, tenant_id, version, doc, state, seq, created_at, updated_at`

func scanRule(r row) (w alerts.Watched, err error) {
	var tenantID sql.NullString
	var doc, state string
	if err := r.Scan(&w.ID, &tenantID, &w.Version, &doc, &state, &w.Seq, &w.CreatedAt, &w.UpdatedAt); err != nil {
		return w, err
	}
	w.TenantID, w.CreatedAt, w.UpdatedAt = tenantID.String, w.CreatedAt.UTC(), w.UpdatedAt.UTC()
	if err := json.Unmarshal([]byte(doc), &w.Document); err != nil {
		return w, fmt.Errorf("read rule %s: %w", w.ID, err)
	}
	if err := json.Unmarshal([]byte(state), &w.State); err != nil {
		return w, fmt.Errorf("read the state of rule %s: %w", w.ID, err)
	}
	return w, nil
}

// ofOwner returns the page of an owner's rows that match f, newest first. The owner is the
// tenant with the ID tenantID, or the operator if tenantID is "".
func ofOwner(columns, table, tenantID string, f alerts.Filter) page {
	var where filter
	where.tenant(tenantID)
	if f.After != "" {
		where.and(`id < ?`, f.After)
	}
	if f.Status != "" {
		where.and(`status = ?`, string(f.Status))
	}
	if f.Open {
		where.conditions = append(where.conditions, `ended_at IS NULL`)
	}
	if !f.From.IsZero() {
		where.and(`began_at >= ?`, stored(f.From))
	}
	if !f.To.IsZero() {
		where.and(`began_at < ?`, stored(f.To))
	}
	switch {
	case f.Of == "":
	case table == `alert_incidents`:
		where.and(`rule_id = ?`, f.Of)
	default:
		where.and(`? IN (incident_id, channel_id)`, f.Of)
	}
	return page{columns, table, where, `id DESC`, f.Limit}
}

// Rules lists the rules of an owner, newest first.
func (s *Store) Rules(ctx context.Context, tenantID string, f alerts.Filter) ([]alerts.Watched, error) {
	list, err := queryPage(ctx, s, scanRule, ofOwner(ruleColumns, `alert_rules`, tenantID, f))
	return list, s.fail(err, "list alert rules")
}

// Watched returns all rules of all owners.
func (s *Store) Watched(ctx context.Context) ([]alerts.Watched, error) {
	list, err := queryAll(ctx, s, scanRule, `SELECT `+ruleColumns+` FROM alert_rules ORDER BY id`)
	return list, s.fail(err, "read the alert rules")
}

// Rule returns a rule of an owner.
func (s *Store) Rule(ctx context.Context, tenantID, id string) (alerts.Watched, error) {
	w, err := queryOne(ctx, s, "alert rule", scanRule, `
		SELECT `+ruleColumns+`
		FROM alert_rules
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
	return w, s.fail(err, "load alert rule %s", id)
}

// roomFor returns an error if the tenant does not exist. It also returns an error, with the
// given code, if the owner already has most rows in the table. If tenantID is "", the owner is
// the operator.
func (e *edit) roomFor(ctx context.Context, tenantID, table, code string, most int) error {
	if err := e.tenantIfAny(ctx, tenantID); err != nil {
		return err
	}
	var n int
	err := e.tx.QueryRowContext(ctx, `
		SELECT COUNT(*) FROM `+table+` WHERE tenant_id IS NOT DISTINCT FROM $1`, orNull(tenantID)).Scan(&n)
	if err == nil && n >= most {
		err = problem.WithCode(problem.Conflict, code, "there are %d already, the largest number; delete one first", most)
	}
	return err
}

// CreateRule adds a rule.
func (s *Store) CreateRule(ctx context.Context, r alerts.Rule, e audit.Entry) (alerts.Rule, error) {
	doc, err := writeJSON(r.Document)
	if err != nil {
		return r, err
	}
	err = s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		if err := ed.roomFor(ctx, r.TenantID, `alert_rules`, "too_many_rules", alerts.MaxRules); err != nil {
			return err
		}
		_, err := ed.exec(ctx, `
			INSERT INTO alert_rules (`+ruleColumns+`)
			VALUES ($1, $2, 1, $3, '{}', 1, $4, $4)`, r.ID, orNull(r.TenantID), doc, stored(r.CreatedAt))
		return err
	})
	r.Version = 1
	return r, s.fail(err, "create an alert rule")
}

// ChangeRule replaces the document of a rule. ChangeRule does not change the state of the rule. The
// error is problem.Stale if match is not the stored version.
func (s *Store) ChangeRule(ctx context.Context, r alerts.Rule, match int64, e audit.Entry) (alerts.Rule, error) {
	doc, err := writeJSON(r.Document)
	if err != nil {
		return r, err
	}
	err = s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		n, err := ed.exec(ctx, `
			UPDATE alert_rules SET doc = $1, version = version + 1, seq = seq + 1, updated_at = $2
			WHERE tenant_id IS NOT DISTINCT FROM $3 AND id = $4 AND version = $5`,
			doc, stored(r.UpdatedAt), orNull(r.TenantID), r.ID, match)
		if err == nil && n == 0 {
			err = ed.staleOrMissing(ctx, "alert rule", `alert_rules`, r.TenantID, r.ID)
		}
		return err
	})
	r.Version = match + 1
	return r, s.fail(err, "change alert rule %s", r.ID)
}

// staleOrMissing returns the error for an UPDATE that matched no row. If a row with this ID
// exists, its version differs, and the error is problem.Stale. Otherwise the error is
// problem.NotFound.
func (e *edit) staleOrMissing(ctx context.Context, what, table, tenantID, id string) error {
	_, err := scanValue[string](e.tx.QueryRowContext(ctx, `
		SELECT id FROM `+table+` WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id))
	if err != nil {
		return missing(err, what)
	}
	return stale(what)
}

// DeleteRule removes a rule and ends its open incident, if it has one.
func (s *Store) DeleteRule(ctx context.Context, tenantID, id string, e audit.Entry) error {
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		n, err := ed.exec(ctx, `
			DELETE FROM alert_rules WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "alert rule")
		}
		if err == nil {
			_, err = ed.exec(ctx, `UPDATE alert_incidents SET ended_at = $1 WHERE rule_id = $2 AND ended_at IS NULL`, ed.now, id)
		}
		return err
	})
	return s.fail(err, "delete alert rule %s", id)
}

const channelColumns = `id, tenant_id, version, doc, secret, former, former_until, created_at, updated_at`

func scanChannel(r row) (c alerts.Channel, err error) {
	var doc string
	into, done := channelFields(&c, &doc)
	if err := r.Scan(into...); err != nil {
		return c, err
	}
	return c, done()
}

// channelFields returns the pointers into which a row with the columns channelColumns is
// scanned. After the scan, the caller calls done, which sets the fields of c that need a
// conversion.
func channelFields(c *alerts.Channel, doc *string) (into []any, done func() error) {
	var tenantID sql.NullString
	var until sql.NullTime
	into = []any{&c.ID, &tenantID, &c.Version, doc, &c.Secret, &c.Former, &until, &c.CreatedAt, &c.UpdatedAt}
	return into, func() error {
		c.TenantID, c.FormerUntil = tenantID.String, instant(until)
		c.CreatedAt, c.UpdatedAt = c.CreatedAt.UTC(), c.UpdatedAt.UTC()
		if err := json.Unmarshal([]byte(*doc), &c.ChannelDocument); err != nil {
			return fmt.Errorf("read channel %s: %w", c.ID, err)
		}
		return nil
	}
}

// Channels lists the channels of an owner, newest first.
func (s *Store) Channels(ctx context.Context, tenantID string, f alerts.Filter) ([]alerts.Channel, error) {
	list, err := queryPage(ctx, s, scanChannel, ofOwner(channelColumns, `alert_channels`, tenantID, f))
	return list, s.fail(err, "list alert channels")
}

// Channel returns a channel of an owner.
func (s *Store) Channel(ctx context.Context, tenantID, id string) (alerts.Channel, error) {
	c, err := queryOne(ctx, s, "alert channel", scanChannel, `
		SELECT `+channelColumns+`
		FROM alert_channels
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
	return c, s.fail(err, "load alert channel %s", id)
}

// CreateChannel adds a channel.
func (s *Store) CreateChannel(ctx context.Context, c alerts.Channel, e audit.Entry) (alerts.Channel, error) {
	doc, err := writeJSON(c.ChannelDocument)
	if err != nil {
		return c, err
	}
	err = s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		if err := ed.roomFor(ctx, c.TenantID, `alert_channels`, "too_many_channels", alerts.MaxChannels); err != nil {
			return err
		}
		_, err := ed.exec(ctx, `
			INSERT INTO alert_channels (`+channelColumns+`)
			VALUES ($1, $2, 1, $3, $4, '', NULL, $5, $5)`, c.ID, orNull(c.TenantID), doc, c.Secret, stored(c.CreatedAt))
		return err
	})
	c.Version = 1
	return c, s.fail(err, "create an alert channel")
}

// ChangeChannel replaces the document and the secrets of a channel. The error is problem.Stale if
// match is not the stored version.
func (s *Store) ChangeChannel(ctx context.Context, c alerts.Channel, match int64, e audit.Entry) (alerts.Channel, error) {
	doc, err := writeJSON(c.ChannelDocument)
	if err != nil {
		return c, err
	}
	err = s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		n, err := ed.exec(ctx, `
			UPDATE alert_channels
			SET doc = $1, secret = $2, former = $3, former_until = $4, version = version + 1, updated_at = $5
			WHERE tenant_id IS NOT DISTINCT FROM $6 AND id = $7 AND version = $8`,
			doc, c.Secret, c.Former, nullable(c.FormerUntil), stored(c.UpdatedAt), orNull(c.TenantID), c.ID, match)
		if err == nil && n == 0 {
			err = ed.staleOrMissing(ctx, "alert channel", `alert_channels`, c.TenantID, c.ID)
		}
		return err
	})
	c.Version = match + 1
	return c, s.fail(err, "change alert channel %s", c.ID)
}

// DeleteChannel removes a channel with its deliveries.
func (s *Store) DeleteChannel(ctx context.Context, tenantID, id string, e audit.Entry) error {
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		n, err := ed.exec(ctx, `
			DELETE FROM alert_channels WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "alert channel")
		}
		return err
	})
	return s.fail(err, "delete alert channel %s", id)
}

const incidentColumns = `id, tenant_id, rule_id, doc, began_at, ended_at, value, peak, detail`

func scanIncident(r row) (i alerts.Incident, err error) {
	var tenantID sql.NullString
	var ended sql.NullTime
	var doc string
	if err := r.Scan(&i.ID, &tenantID, &i.RuleID, &doc, &i.BeganAt, &ended, &i.Value, &i.Peak, &i.Detail); err != nil {
		return i, err
	}
	i.TenantID, i.BeganAt, i.EndedAt = tenantID.String, i.BeganAt.UTC(), instant(ended)
	if err := json.Unmarshal([]byte(doc), &i.Rule); err != nil {
		return i, fmt.Errorf("read incident %s: %w", i.ID, err)
	}
	return i, nil
}

// Incidents lists the incidents of an owner, newest first.
func (s *Store) Incidents(ctx context.Context, tenantID string, f alerts.Filter) ([]alerts.Incident, error) {
	list, err := queryPage(ctx, s, scanIncident, ofOwner(incidentColumns, `alert_incidents`, tenantID, f))
	return list, s.fail(err, "list alert incidents")
}

// Incident returns an incident of an owner.
func (s *Store) Incident(ctx context.Context, tenantID, id string) (alerts.Incident, error) {
	i, err := queryOne(ctx, s, "alert", scanIncident, `
		SELECT `+incidentColumns+`
		FROM alert_incidents
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
	return i, s.fail(err, "load alert %s", id)
}

// Advance writes the result of one evaluation of a rule: the new state, the incidents that began or
// ended, and the deliveries. a.Seq is the sequence number of the rule when this evaluation began.
// If another node has changed or evaluated the rule since then, the stored number differs. Advance
// then returns false and writes nothing.
func (s *Store) Advance(ctx context.Context, a alerts.Advance) (bool, error) {
	state, err := writeJSON(a.State)
	if err != nil {
		return false, err
	}
	var mine bool
	err = s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := execIn(ctx, tx, `
			UPDATE alert_rules SET state = $1, seq = seq + 1 WHERE id = $2 AND seq = $3`, state, a.RuleID, a.Seq)
		if mine = err == nil && n == 1; !mine {
			return err
		}
		for _, i := range a.Began {
			doc, err := writeJSON(i.Rule)
			if err != nil {
				return err
			}
			if _, err := execIn(ctx, tx, `
				INSERT INTO alert_incidents (`+incidentColumns+`)
				VALUES ($1, $2, $3, $4, $5, NULL, $6, $7, $8)`,
				i.ID, orNull(i.TenantID), i.RuleID, doc, stored(i.BeganAt), i.Value, i.Peak, i.Detail); err != nil {
				return err
			}
		}
		for _, i := range a.Ended {
			if _, err := execIn(ctx, tx, `
				UPDATE alert_incidents SET ended_at = $1, peak = $2 WHERE id = $3`, stored(i.EndedAt), i.Peak, i.ID); err != nil {
				return err
			}
		}
		for i := range a.Deliveries {
			if _, err := addDelivery(ctx, tx, &a.Deliveries[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return mine && err == nil, s.fail(err, "advance alert rule %s", a.RuleID)
}

const deliveryColumns = `id, tenant_id, channel_id, incident_id, invitation_id, event, body, status, attempts, answer,
	created_at, due_at, ended_at`

// addDelivery adds a delivery, if its owner still has the channel. It returns the number of added
// rows: 1 or 0.
func addDelivery(ctx context.Context, tx *sql.Tx, d *alerts.Delivery) (int64, error) {
	return execIn(ctx, tx, `
		INSERT INTO alert_deliveries (`+deliveryColumns+`)
		SELECT $1, tenant_id, id, $2, NULL, $3, $4, $5, $6, $7, $8, $9, $10
		FROM alert_channels
		WHERE id = $11 AND tenant_id IS NOT DISTINCT FROM $12`,
		d.ID, orNull(d.IncidentID), string(d.Event), string(d.Body), string(d.Status), d.Attempts, d.Answer,
		stored(d.CreatedAt), nullable(d.DueAt), nullable(d.EndAt), d.ChannelID, orNull(d.TenantID))
}

func scanDelivery(r row) (d alerts.Delivery, err error) {
	into, done := deliveryFields(&d)
	if err := r.Scan(into...); err != nil {
		return d, err
	}
	done()
	return d, nil
}

// deliveryFields returns the pointers into which a row with the columns deliveryColumns is
// scanned. After the scan, the caller calls done, which sets the fields of d that need a
// conversion.
func deliveryFields(d *alerts.Delivery) (into []any, done func()) {
	var tenantID, channelID, incidentID, invitationID sql.NullString
	var due, ended sql.NullTime
	into = []any{
		&d.ID, &tenantID, &channelID, &incidentID, &invitationID, &d.Event, &d.Body, &d.Status, &d.Attempts, &d.Answer, &d.CreatedAt, &due,
		&ended,
	}
	return into, func() {
		d.TenantID, d.ChannelID, d.IncidentID, d.InvitationID = tenantID.String, channelID.String, incidentID.String, invitationID.String
		d.CreatedAt, d.DueAt, d.EndAt = d.CreatedAt.UTC(), instant(due), instant(ended)
	}
}

// Deliveries lists the deliveries of an owner, newest first.
func (s *Store) Deliveries(ctx context.Context, tenantID string, f alerts.Filter) ([]alerts.Delivery, error) {
	list, err := queryPage(ctx, s, scanDelivery, ofOwner(deliveryColumns, `alert_deliveries`, tenantID, f))
	return list, s.fail(err, "list alert deliveries")
}

// Delivery returns a delivery of an owner with its attempts.
func (s *Store) Delivery(ctx context.Context, tenantID, id string) (alerts.Delivery, []alerts.Attempt, error) {
	d, err := queryOne(ctx, s, "alert delivery", scanDelivery, `
		SELECT `+deliveryColumns+`
		FROM alert_deliveries
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
	if err != nil {
		return d, nil, s.fail(err, "load alert message %s", id)
	}
	list, err := queryAll(ctx, s, func(r row) (a alerts.Attempt, err error) {
		err = r.Scan(&a.At, &a.Answer)
		a.At = a.At.UTC()
		return a, err
	}, `SELECT at, answer FROM alert_attempts WHERE delivery_id = $1 ORDER BY at`, id)
	return d, list, s.fail(err, "load the attempts of alert message %s", id)
}

// QueueDelivery adds a delivery. The error is problem.NotFound if the owner of the delivery has
// no such channel.
func (s *Store) QueueDelivery(ctx context.Context, d alerts.Delivery, e audit.Entry) error {
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		n, err := addDelivery(ctx, ed.tx, &d)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "alert channel")
		}
		return err
	})
	return s.fail(err, "queue an alert message")
}

// RepeatDelivery makes a delivery due at now and sets its number of attempts to 0, so that it
// is sent again.
func (s *Store) RepeatDelivery(ctx context.Context, tenantID, id string, now time.Time, e audit.Entry) (alerts.Delivery, error) {
	var d alerts.Delivery
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		d, err = scanDelivery(ed.tx.QueryRowContext(ctx, `
			UPDATE alert_deliveries SET status = 'waiting', attempts = 0, due_at = $1, ended_at = NULL
			WHERE tenant_id IS NOT DISTINCT FROM $2 AND id = $3
			RETURNING `+deliveryColumns, stored(now), orNull(tenantID), id))
		return missing(err, "alert delivery")
	})
	return d, s.fail(err, "repeat alert message %s", id)
}

// ClaimDeliveries returns at most limit deliveries that are due at now. For each of them, it counts
// an attempt and sets the time of the next attempt to until, so that no other node claims the
// delivery before until.
func (s *Store) ClaimDeliveries(ctx context.Context, now, until time.Time, limit int) ([]alerts.Due, error) {
	var list []alerts.Due
	ids, err := queryAll(ctx, s, scanValue[string], `
		SELECT id FROM alert_deliveries WHERE due_at <= $1 ORDER BY due_at LIMIT $2`, stored(now), limit)
	if err != nil || len(ids) == 0 {
		return nil, s.fail(err, "look for alert messages")
	}
	err = s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		list = list[:0]
		for _, id := range ids {
			n, err := execIn(ctx, tx, `
				UPDATE alert_deliveries SET due_at = $1, attempts = attempts + 1 WHERE id = $2 AND due_at <= $3`,
				stored(until), id, stored(now))
			if err != nil {
				return err
			}
			if n == 0 {
				continue // another node claimed it
			}
			due := alerts.Due{}
			due.Delivery, err = scanDelivery(tx.QueryRowContext(ctx, `SELECT `+deliveryColumns+` FROM alert_deliveries WHERE id = $1`, id))
			if err == nil && due.ChannelID != "" {
				due.Channel, err = scanChannel(tx.QueryRowContext(ctx, `SELECT `+channelColumns+` FROM alert_channels WHERE id = $1`, due.ChannelID))
			}
			if err != nil {
				return err
			}
			list = append(list, due)
		}
		return nil
	})
	return list, s.fail(err, "claim alert messages")
}

// EndAttempt writes the result of an attempt to send d. It writes nothing if a later attempt
// has begun, or if the delivery is no longer waiting.
func (s *Store) EndAttempt(ctx context.Context, d alerts.Delivery, at time.Time) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := execIn(ctx, tx, `
			UPDATE alert_deliveries SET status = $1, answer = $2, due_at = $3, ended_at = $4
			WHERE id = $5 AND attempts = $6 AND status = 'waiting'`,
			string(d.Status), d.Answer, nullable(d.DueAt), nullable(d.EndAt), d.ID, d.Attempts)
		if err == nil && n == 1 {
			_, err = execIn(ctx, tx, `
				INSERT INTO alert_attempts (delivery_id, at, answer) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, d.ID, stored(at), d.Answer)
		}
		return err
	})
	return s.fail(err, "keep the result of alert message %s", d.ID)
}

// PruneAlerts removes incidents, deliveries and maintenance windows that ended before a time.
func (s *Store) PruneAlerts(ctx context.Context, before time.Time) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for table, end := range map[string]string{`alert_deliveries`: `ended_at`, `alert_incidents`: `ended_at`, `alert_maintenance`: `ends_at`} {
			if _, err := execIn(ctx, tx, `DELETE FROM `+table+` WHERE `+end+` < $1`, stored(before)); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(err, "remove old alerts")
}
