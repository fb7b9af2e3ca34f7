package alerts

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// A Filter selects rows for a list, newest first. The zero value selects the newest 100 rows.
type Filter struct {
	After  string // ID of the last row of the previous page
	Limit  int    // 0 means 100
	Status DeliveryStatus
	Open   bool // only incidents that have not ended
	// From and To select the incidents that began in [From, To). The zero time does not filter.
	From, To time.Time
	// Of is an ID. For incidents, it is the ID of a rule. For deliveries, it is the ID of an
	// incident or of a channel.
	Of string
}

// Watched is a rule with its state. Seq increases with each change of the rule or its state.
type Watched struct {
	Rule
	State State
	Seq   int64
}

// An Advance is the result of one evaluation of a rule, which Store.Advance writes.
type Advance struct {
	RuleID string
	Seq    int64 // Watched.Seq when the evaluation read the rule
	State  State
	// Began has the incidents of alerts that begin, and Ended has the incidents of alerts that end.
	// Only a rule that watches each tenant can have several.
	Began, Ended []Incident
	Deliveries   []Delivery
}

// Due is a delivery that a sender has claimed for an attempt, with its channel. For the delivery of
// an invitation, Channel is the zero Channel.
type Due struct {
	Delivery
	Channel Channel
}

// A Store stores rules, channels, incidents, deliveries and maintenance windows. tenantID is
// the ID of the owner, or "" for the operator. If an object has another owner, the error is
// problem.NotFound. match is the version that the caller has read; if the stored version
// differs, the error is problem.Stale.
type Store interface {
	Rules(ctx context.Context, tenantID string, f Filter) ([]Watched, error)
	Rule(ctx context.Context, tenantID, id string) (Watched, error)
	CreateRule(ctx context.Context, r Rule, e audit.Entry) (Rule, error)
	ChangeRule(ctx context.Context, r Rule, match int64, e audit.Entry) (Rule, error)
	DeleteRule(ctx context.Context, tenantID, id string, e audit.Entry) error

	Channels(ctx context.Context, tenantID string, f Filter) ([]Channel, error)
	Channel(ctx context.Context, tenantID, id string) (Channel, error)
	CreateChannel(ctx context.Context, c Channel, e audit.Entry) (Channel, error)
	ChangeChannel(ctx context.Context, c Channel, match int64, e audit.Entry) (Channel, error)
	DeleteChannel(ctx context.Context, tenantID, id string, e audit.Entry) error

	Maintenances(ctx context.Context, tenantID string, f Filter) ([]Maintenance, error)
	Maintenance(ctx context.Context, tenantID, id string) (Maintenance, error)
	CreateMaintenance(ctx context.Context, m Maintenance, e audit.Entry) (Maintenance, error)
	DeleteMaintenance(ctx context.Context, tenantID, id string, e audit.Entry) error

	Incidents(ctx context.Context, tenantID string, f Filter) ([]Incident, error)
	Incident(ctx context.Context, tenantID, id string) (Incident, error)
	// Delivery returns a delivery with its attempts, oldest first.
	Delivery(ctx context.Context, tenantID, id string) (Delivery, []Attempt, error)
	Deliveries(ctx context.Context, tenantID string, f Filter) ([]Delivery, error)
	// QueueDelivery adds a delivery. The error is problem.NotFound if its owner has no such
	// channel.
	QueueDelivery(ctx context.Context, d Delivery, e audit.Entry) error
	// RepeatDelivery makes a delivery due at now and sets its number of attempts to 0.
	RepeatDelivery(ctx context.Context, tenantID, id string, now time.Time, e audit.Entry) (Delivery, error)

	TakeLease(ctx context.Context, name, holder string, life time.Duration) (bool, error)
	// Watched returns all rules of all owners.
	Watched(ctx context.Context) ([]Watched, error)
	// AllMaintenances returns the maintenance windows of all owners.
	AllMaintenances(ctx context.Context) ([]Maintenance, error)
	// Advance writes the result of an evaluation in one transaction: the state, the incidents
	// and the deliveries. It returns false and writes nothing if the stored Seq of the rule is
	// not a.Seq.
	Advance(ctx context.Context, a Advance) (bool, error)
	// ClaimDeliveries returns at most limit deliveries that are due at now. For each of them, it
	// adds 1 to Attempts and sets the time of the next attempt to until, so that no other node
	// claims the delivery before until.
	ClaimDeliveries(ctx context.Context, now, until time.Time, limit int) ([]Due, error)
	// EndAttempt writes the result of an attempt that ended at the time at: DueAt, Status,
	// Answer and EndAt of d. It writes nothing if a later attempt has begun.
	EndAttempt(ctx context.Context, d Delivery, at time.Time) error
	// PruneAlerts removes incidents, deliveries and maintenance windows that ended before the
	// time before.
	PruneAlerts(ctx context.Context, before time.Time) error
}
