package alerts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// A Maintenance is a time in which rules announce no alerts, for example the time of a planned
// upgrade.
type Maintenance struct {
	ID       string // UUIDv7
	TenantID string // ID of the tenant that owns it; "" for the operator
	MaintenanceDocument
	CreatedAt time.Time
}

// A MaintenanceDocument is the part of a Maintenance that people write. The database and the
// audit log contain it as this JSON.
type MaintenanceDocument struct {
	Name     string    `json:"name"`
	StartsAt time.Time `json:"starts_at"`
	EndsAt   time.Time `json:"ends_at"`
	Repeat   Repeat    `json:"repeat,omitempty"`
	Rules    []string  `json:"rules,omitempty"` // IDs of the rules; if it is empty, the window applies to all rules of the owner
}

// A Repeat says how often a maintenance window is repeated. The intervals are counted in UTC,
// so the window does not follow daylight saving time.
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
	MaxMaintenance       = 100 // maximum number for the operator, and for each tenant
	maxMaintenanceLength = 30 * 24 * time.Hour
)

// Covers reports whether now is in the window or in one of its repetitions.
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

// Over reports whether the window and all its repetitions have ended at now. A window that
// repeats never ends.
func (d *MaintenanceDocument) Over(now time.Time) bool {
	return d.Repeat == Once && !now.Before(d.EndsAt)
}

// silences reports whether this window prevents the rule from announcing alerts at now.
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

// Maintenances lists the maintenance windows of an owner that match f, newest first.
func (s *Service) Maintenances(ctx context.Context, tenantID string, f Filter) ([]Maintenance, error) {
	return s.store.Maintenances(ctx, tenantID, f)
}

// Maintenance returns one maintenance window of an owner.
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

// DeleteMaintenance removes a maintenance window, so that its rules announce alerts again.
func (s *Service) DeleteMaintenance(ctx context.Context, tenantID, id string) error {
	m, err := s.store.Maintenance(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return s.store.DeleteMaintenance(ctx, tenantID, id, entry(ctx, "alert_maintenance.delete", tenantID, id, m.Name, m.MaintenanceDocument,
		nil))
}
