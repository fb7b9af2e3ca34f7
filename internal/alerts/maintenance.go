package alerts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// A Maintenance is a time in which rules announce no alerts, such as that of a planned
// upgrade.
type Maintenance struct {
	ID       string // UUIDv7
	TenantID string // the owner; "" for the operator
	MaintenanceDocument
	CreatedAt time.Time
}

// A MaintenanceDocument is the part of a Maintenance that people write. Its JSON is the form
// of the database and of the audit log.
type MaintenanceDocument struct {
	Name     string    `json:"name"`
	StartsAt time.Time `json:"starts_at"`
	EndsAt   time.Time `json:"ends_at"`
	Repeat   Repeat    `json:"repeat,omitempty"`
	Rules    []string  `json:"rules,omitempty"` // IDs; empty: all rules of the owner
}

// A Repeat is how often a maintenance window is repeated, counted in UTC.
type Repeat string

const (
	Once   Repeat = ""
	Daily  Repeat = "daily"
	Weekly Repeat = "weekly"
)

// Repeats lists every Repeat.
var Repeats = []Repeat{Once, Daily, Weekly}

func (r Repeat) interval() time.Duration {
	switch r {
	case Daily:
		return 24 * time.Hour
	case Weekly:
		return 7 * 24 * time.Hour
	case Once:
	}
	return 0
}

// Bounds of maintenance windows.
const (
	MaxMaintenance       = 100 // of the operator, and of each tenant
	maxMaintenanceLength = 30 * 24 * time.Hour
)

// Covers reports whether a time is in the window.
func (d *MaintenanceDocument) Covers(now time.Time) bool {
	since := now.Sub(d.StartsAt)
	if since < 0 {
		return false
	}
	if every := d.Repeat.interval(); every > 0 {
		since %= every
	}
	return since < d.EndsAt.Sub(d.StartsAt)
}

// Over reports whether the window will cover no later time.
func (d *MaintenanceDocument) Over(now time.Time) bool {
	return d.Repeat == Once && !now.Before(d.EndsAt)
}

// silences reports whether a rule announces no alert at a time because of a window.
func (m *Maintenance) silences(r *Rule, now time.Time) bool {
	return m.TenantID == r.TenantID && (len(m.Rules) == 0 || slices.Contains(m.Rules, r.ID)) && m.Covers(now)
}

func (d *MaintenanceDocument) validate(f *problem.Fields, now time.Time) {
	f.Line("/name", d.Name, 1, MaxName)
	if !slices.Contains(Repeats, d.Repeat) {
		f.Add("/repeat", "must be daily, weekly, or absent")
	}
	most := maxMaintenanceLength
	if every := d.Repeat.interval(); every > 0 {
		most = every
	}
	switch length := d.EndsAt.Sub(d.StartsAt); {
	case d.StartsAt.IsZero():
		f.Add("/starts_at", "is required")
	case d.EndsAt.IsZero():
		f.Add("/ends_at", "is required")
	case length <= 0:
		f.Add("/ends_at", "must be after the start")
	case length > most:
		f.Add("/ends_at", "must be at most %d hours after the start", int(most.Hours()))
	case d.Over(now):
		f.Add("/ends_at", "must not be over")
	}
	if len(d.Rules) > MaxRules {
		f.Add("/rules", "must be at most %d", MaxRules)
	}
}

// Maintenances lists the maintenance windows of an owner, newest first.
func (s *Service) Maintenances(ctx context.Context, tenantID string, f Filter) ([]Maintenance, error) {
	return s.store.Maintenances(ctx, tenantID, f)
}

// Maintenance returns a maintenance window.
func (s *Service) Maintenance(ctx context.Context, tenantID, id string) (Maintenance, error) {
	return s.store.Maintenance(ctx, tenantID, id)
}

// CreateMaintenance adds a maintenance window. Errors: problem.Invalid; problem.Conflict with
// the code too_many_maintenance_windows.
func (s *Service) CreateMaintenance(ctx context.Context, tenantID string, d MaintenanceDocument) (Maintenance, error) {
	d.StartsAt, d.EndsAt = d.StartsAt.UTC().Truncate(time.Millisecond), d.EndsAt.UTC().Truncate(time.Millisecond)
	var f problem.Fields
	if d.validate(&f, s.instant()); f.Err() != nil {
		return Maintenance{}, f.Err()
	}
	for i, id := range d.Rules {
		switch _, err := s.store.Rule(ctx, tenantID, id); {
		case problem.Is(err, problem.NotFound):
			f.Add(fmt.Sprintf("/rules/%d", i), "no such rule")
		case err != nil:
			return Maintenance{}, err
		}
	}
	if err := f.Err(); err != nil {
		return Maintenance{}, err
	}
	m := Maintenance{ID: audit.NewID(), TenantID: tenantID, MaintenanceDocument: d, CreatedAt: s.instant()}
	return s.store.CreateMaintenance(ctx, m, entry(ctx, "alert_maintenance.create", tenantID, m.ID, d.Name, nil, d))
}

// DeleteMaintenance removes a maintenance window, which ends it.
func (s *Service) DeleteMaintenance(ctx context.Context, tenantID, id string) error {
	m, err := s.store.Maintenance(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return s.store.DeleteMaintenance(ctx, tenantID, id, entry(ctx, "alert_maintenance.delete", tenantID, id, m.Name, m.MaintenanceDocument,
		nil))
}
