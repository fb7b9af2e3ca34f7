package sharing

import (
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// A Kind says what a link opens.
type Kind string

// The kinds.
const (
	Display  Kind = "display"  // the page with live updates, for a screen on a wall
	Snapshot Kind = "snapshot" // a copy of the page at the time when the link was created
)

// A Page is a page of the dashboard that can be shared.
type Page string

// The pages.
const (
	Overview Page = "overview" // the traffic of all tenants; only the operator can own such a link
	Traffic  Page = "traffic"  // the first page of a tenant; only the tenant can own such a link
	Denials  Page = "denials"  // recorded denials, of all tenants or of one tenant; only as a snapshot
)

// Bounds of shared links.
const (
	// MaxLinks is the maximum number of links of the operator, and of each tenant. Expired links
	// count until a node deletes them, within minutes.
	MaxLinks = 100
	// MaxName is the maximum length of a name in characters, and maxQuery is the maximum length of
	// a query in bytes.
	MaxName  = 100
	maxQuery = 2048
	// MaxContent is the maximum size of a snapshot in bytes.
	MaxContent = 1 << 20

	day = 24 * time.Hour
	// SnapshotLife is the validity of a snapshot if its creator chooses none, and DisplayLife is
	// that of a display. MaxSnapshotLife and MaxDisplayLife are the maxima.
	SnapshotLife    = 7 * day
	MaxSnapshotLife = 90 * day
	DisplayLife     = 30 * day
	MaxDisplayLife  = 366 * day
)

// SeenGranularity is the precision of Link.LastUsedAt.
const SeenGranularity = time.Minute

// A Document is the part of a Link that its creator chooses. The audit log contains it as this
// JSON.
type Document struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Page Page   `json:"shows"`
	// Query has the parameters of the page, such as its time range and its filters.
	Query string `json:"query,omitempty"`
	// Zone is the name of the time zone in which the page shows times.
	Zone      string    `json:"time_zone"`
	ExpiresAt time.Time `json:"expires_at"`
}

// A Link is a shared link.
type Link struct {
	ID       string // UUIDv7
	TenantID string // the owner; "" for the operator
	Document
	// Hash is the SHA-256 of the token. The token is not stored.
	Hash       [32]byte
	CreatedBy  audit.Actor
	CreatedAt  time.Time
	LastUsedAt time.Time // zero: never opened
}

// Longest returns the maximum validity of links of a kind.
func (k Kind) Longest() time.Duration {
	if k == Display {
		return MaxDisplayLife
	}
	return MaxSnapshotLife
}

// Usual returns the validity of links of a kind if the creator chooses none.
func (k Kind) Usual() time.Duration {
	if k == Display {
		return DisplayLife
	}
	return SnapshotLife
}

// validate adds the faults of a document to f. operator says that the operator owns the link.
func (d *Document) validate(f *problem.Fields, operator bool, now time.Time) {
	f.Line("/name", d.Name, 1, MaxName)
	if d.Kind != Display && d.Kind != Snapshot {
		f.Add("/kind", "must be display or snapshot")
	}
	switch {
	case d.Page == Overview && operator, d.Page == Traffic && !operator:
	case d.Page == Denials && d.Kind == Snapshot:
	case operator:
		f.Add("/shows", "must be overview, or denials for a snapshot")
	default:
		f.Add("/shows", "must be traffic, or denials for a snapshot")
	}
	if _, err := url.ParseQuery(d.Query); err != nil || len(d.Query) > maxQuery {
		f.Add("/query", "must be a query of at most %d bytes", maxQuery)
	}
	f.TimeZone("/time_zone", d.Zone)
	switch life := d.ExpiresAt.Sub(now); {
	case life <= 0:
		f.Add("/expires_at", "must be in the future")
	case life > d.Kind.Longest():
		f.Add("/expires_at", "must be at most %d days from now", d.Kind.Longest()/day)
	}
}
