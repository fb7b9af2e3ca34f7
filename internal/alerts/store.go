package alerts

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// A Filter selects rows of a listing, newest first.
type Filter struct {
	After  string // the ID of the last row of the page before
	Limit  int    // 0 means 100
	Status DeliveryStatus
	Open   bool // only incidents that have not ended
	// From and To select the incidents that began in [From, To). The zero time does not filter.
	From, To time.Time
	// Of is the ID of the rule of incidents, or of the incident or the channel of deliveries.
	Of string
}

// Watched is a rule with its state. Seq is the number of the state's changes.
type Watched struct {
	Rule
	State State
	Seq   int64
}

// An Advance is a new state of a rule.
type Advance struct {
	RuleID string
	Seq    int64 // of the state that was read
	State  State
	// Began is the incident of an alert that begins, and Ended that of one that ends.
	Began, Ended *Incident
	Deliveries   []Delivery
}

// Due is a delivery with its channel, claimed for an attempt.
type Due struct {
	Delivery
	Channel Channel
}

// A Store keeps rules, channels, incidents and deliveries. tenantID is the owner: "" for
// the operator. Rows of other owners are problem.NotFound. match is the version that a
// change expects; problem.Stale if the row has another one.
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
	// QueueDelivery adds a test message.
	QueueDelivery(ctx context.Context, d Delivery, e audit.Entry) error
	// RepeatDelivery makes a delivery due now, with no attempts.
	RepeatDelivery(ctx context.Context, tenantID, id string, now time.Time, e audit.Entry) (Delivery, error)

	TakeLease(ctx context.Context, name, holder string, life time.Duration) (bool, error)
	// Watched returns all rules of all owners.
	Watched(ctx context.Context) ([]Watched, error)
	// AllMaintenances returns the maintenance windows of all owners.
	AllMaintenances(ctx context.Context) ([]Maintenance, error)
	// Advance writes a state, its incident and its deliveries in one transaction. It
	// returns false and writes nothing if the rule has another Seq.
	Advance(ctx context.Context, a Advance) (bool, error)
	// ClaimDeliveries returns deliveries that are due, and makes them due again at until.
	// Each has one attempt more.
	ClaimDeliveries(ctx context.Context, now, until time.Time, limit int) ([]Due, error)
	// EndAttempt writes the result of an attempt that ended at a time: DueAt, Status, Answer
	// and EndAt of d. It writes nothing if another attempt has begun.
	EndAttempt(ctx context.Context, d Delivery, at time.Time) error
	// PruneAlerts removes incidents, deliveries and maintenance windows that ended before a
	// time.
	PruneAlerts(ctx context.Context, before time.Time) error
}
