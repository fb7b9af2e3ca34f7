package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
)

const maintenanceColumns = `id, tenant_id, doc, created_at`

func scanMaintenance(r row) (m alerts.Maintenance, err error) {
	var tenantID sql.NullString
	var doc string
	if err := r.Scan(&m.ID, &tenantID, &doc, &m.CreatedAt); err != nil {
		return m, err
	}
	m.TenantID, m.CreatedAt = tenantID.String, m.CreatedAt.UTC()
	if err := json.Unmarshal([]byte(doc), &m.MaintenanceDocument); err != nil {
		return m, fmt.Errorf("read maintenance window %s: %w", m.ID, err)
	}
	return m, nil
}

// Maintenances lists the maintenance windows of an owner, newest first.
func (s *Store) Maintenances(ctx context.Context, tenantID string, f alerts.Filter) ([]alerts.Maintenance, error) {
	list, err := queryPage(ctx, s, scanMaintenance, ofOwner(maintenanceColumns, `alert_maintenance`, tenantID, f))
	return list, s.fail(err, "list maintenance windows")
}

// AllMaintenances returns the maintenance windows of all owners.
func (s *Store) AllMaintenances(ctx context.Context) ([]alerts.Maintenance, error) {
	list, err := queryAll(ctx, s, scanMaintenance, `SELECT `+maintenanceColumns+` FROM alert_maintenance ORDER BY id`)
	return list, s.fail(err, "read the maintenance windows")
}

// Maintenance returns a maintenance window of an owner.
func (s *Store) Maintenance(ctx context.Context, tenantID, id string) (alerts.Maintenance, error) {
	m, err := queryOne(ctx, s, "maintenance window", scanMaintenance, `
		SELECT `+maintenanceColumns+`
		FROM alert_maintenance
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
	return m, s.fail(err, "load maintenance window %s", id)
}

// CreateMaintenance adds a maintenance window. For a window that repeats, the column ends_at is
// NULL, so PruneAlerts never deletes the window.
func (s *Store) CreateMaintenance(ctx context.Context, m alerts.Maintenance, e audit.Entry) (alerts.Maintenance, error) {
	doc, err := writeJSON(m.MaintenanceDocument)
	if err != nil {
		return m, err
	}
	end := m.EndsAt
	if m.Repeat != alerts.Once {
		end = time.Time{}
	}
	err = s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		if err := ed.roomFor(ctx, m.TenantID, `alert_maintenance`, "too_many_maintenance_windows", alerts.MaxMaintenance); err != nil {
			return err
		}
		_, err := ed.exec(ctx, `
			INSERT INTO alert_maintenance (`+maintenanceColumns+`, ends_at)
			VALUES ($1, $2, $3, $4, $5)`, m.ID, orNull(m.TenantID), doc, stored(m.CreatedAt), nullable(end))
		return err
	})
	return m, s.fail(err, "create a maintenance window")
}

// DeleteMaintenance removes a maintenance window.
func (s *Store) DeleteMaintenance(ctx context.Context, tenantID, id string, e audit.Entry) error {
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		n, err := ed.exec(ctx, `
			DELETE FROM alert_maintenance WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id)
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "maintenance window")
		}
		return err
	})
	return s.fail(err, "delete maintenance window %s", id)
}
