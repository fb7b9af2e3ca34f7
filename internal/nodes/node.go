package nodes

import (
	"cmp"
	"context"
	"time"
)

// A Node is the last report of one process. Times are those of its own clock unless stated
// otherwise; see Ago.
type Node struct {
	// ID of the process: a UUID that is made at its start. A restarted node is another process.
	ID string `json:"-"`
	// Name is the host name and the listen address, "web-1:8080".
	Name string `json:"-"`
	// Version of Headgate and of Go.
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
	// StartedAt is when the process began to serve.
	StartedAt time.Time `json:"started_at,omitzero"`
	// At is when it made the report.
	At time.Time `json:"at,omitzero"`
	// SeenAt is when the database stored the report, by the database's clock. The Store sets it.
	SeenAt time.Time `json:"-"`
	// Unreadable means that the report cannot be read: only ID, Name and SeenAt are set. The Store
	// sets it.
	Unreadable bool `json:"-"`
	// Draining means that the node is stopping.
	Draining bool `json:"draining,omitempty"`

	// Limiter is LimiterRedis or LimiterInProcess.
	Limiter string `json:"limiter"`
	// Sharing is HEADGATE_NODES: how many nodes share the limits while Redis is unavailable.
	Sharing int `json:"sharing"`
	// Redis as it sees it; zero without Redis.
	Redis Redis `json:"redis,omitzero"`

	Snapshot Snapshot `json:"snapshot"`
	Database Database `json:"database"`
	Counts   Counts   `json:"counts"`
	Process  Process  `json:"process"`
}

// The limiters of a Node.
const (
	LimiterRedis     = "redis"
	LimiterInProcess = "in process"
)

// Snapshot is the state of a node's snapshot.
type Snapshot struct {
	// Revision in force.
	Revision int64 `json:"revision"`
	// ConfirmedAt is when the database last confirmed that the revision is the newest.
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	// Listening means that the node receives notifications; otherwise it only polls.
	Listening bool `json:"listening"`
	// Problems is the number of objects that cannot be used as stored.
	Problems int `json:"problems,omitempty"`
	// Held is why a newer state is held; "" if none is.
	Held string `json:"held,omitempty"`
	// Failing means that the last read of the database failed.
	Failing bool `json:"failing,omitempty"`
}

// Redis is the state of Redis for one node.
type Redis struct {
	// Reachable is false while the node does not call Redis and on_failure decides.
	Reachable bool `json:"reachable"`
	// Since is when Reachable last changed.
	Since time.Time `json:"since,omitzero"`
	// Err is why it is not reachable; "" while it is.
	Err string `json:"error,omitempty"`
	// Refusal is set while Redis answers and refuses to write.
	Refusal Refusal `json:"refusal,omitzero"`
	// LostAt is when the node last found Redis without data that it had, and Lost
	// says what happened; zero: never.
	LostAt time.Time `json:"lost_at,omitzero"`
	Lost   string    `json:"lost,omitempty"`
	// UsedMemory and MaxMemory of the server in bytes; 0: not known, or no limit.
	UsedMemory int64 `json:"used_memory,omitempty"`
	MaxMemory  int64 `json:"max_memory,omitempty"`
	// Keys are the tenants with most of the keys that they may have, the fullest first.
	Keys []TenantKeys `json:"keys,omitempty"`
	// Version of the server and its maxmemory-policy, "" while unknown.
	Version         string `json:"version,omitempty"`
	MaxMemoryPolicy string `json:"maxmemory_policy,omitempty"`
	// Mismatches are requests since the start that the script and the reference decided
	// differently. It should stay 0.
	Mismatches int64 `json:"mismatches,omitempty"`
	// BreakerOpened is how often the breaker opened since the start.
	BreakerOpened int64 `json:"breaker_opened,omitempty"`
	// RoundTrips are the calls that Redis answered since the last report: those of checks or,
	// without checks, one probe per second. The time includes waiting for a connection, but not
	// waiting for a batch.
	RoundTrips Latency `json:"round_trips,omitzero"`
}

// TenantKeys is about how many live counters a tenant has in Redis, and how many it may
// have. If it is full, new counters of a limit share one.
type TenantKeys struct {
	Tenant string `json:"tenant"` // slug
	Live   int64  `json:"live"`
	Max    int64  `json:"max"`
	Full   bool   `json:"full,omitempty"`
}

// A Refusal is how a store answers that is reachable and refuses to write. The
// zero value: it does not.
type Refusal struct {
	// Since is when the first write of this time was refused.
	Since time.Time `json:"since"`
	// Code is the class of the answer, for metrics: READONLY, OOM, read_only, full.
	Code string `json:"code"`
	// Answer is what the store answered last.
	Answer string `json:"answer"`
}

// Database is the state of the database for one node.
type Database struct {
	// Refusal is set while the database refuses to write.
	Refusal Refusal `json:"refusal,omitzero"`
	// Report is how long the write of the previous report took. On SQLite it includes waiting for
	// the writer and the disk. 0: unknown.
	Report time.Duration `json:"-"`
	// Polls are the reads of the revision since the last report, about two per second.
	Polls Latency `json:"polls,omitzero"`
}

// Latency of the calls of an interval. P50 and P99 are at least the true values, and at most an
// eighth and a microsecond above; 0 without calls.
type Latency struct {
	P50   time.Duration `json:"-"`
	P99   time.Duration `json:"-"`
	Calls int64         `json:"calls"`
}

// Counts is the state of a node's counts before they are in the database.
type Counts struct {
	// Decisions is the number in Interval, which ends one or two seconds before the report.
	// Interval is 0 in a first report.
	Decisions int64         `json:"decisions,omitempty"`
	Interval  time.Duration `json:"-"`
	// WaitingRows are not in the database yet. WaitingRefusals of them are refusals
	// with their explanation.
	WaitingRows     int64 `json:"waiting_rows,omitempty"`
	WaitingRefusals int64 `json:"waiting_refusals,omitempty"`
	// Waiting is the age of the oldest waiting row. Nodes flush every second, so more than ten
	// seconds mean that the database does not accept counts.
	Waiting time.Duration `json:"-"`
	// FlushedAt is when counts were last written; zero: never yet.
	FlushedAt time.Time `json:"flushed_at,omitzero"`
	// FailingSince is when writing began to fail; zero: it does not fail.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Failure      string    `json:"failure,omitempty"`
	// Folded are counts that found no room in memory and are only in the sums above
	// them, NotKept refusals that found none, both since the start.
	Folded  int64 `json:"folded,omitempty"`
	NotKept int64 `json:"not_kept,omitempty"`
}

// Rate returns the decisions per second; 0 if unknown.
func (c Counts) Rate() float64 {
	if c.Interval <= 0 {
		return 0
	}
	return float64(c.Decisions) / c.Interval.Seconds()
}

// Process is the resource usage of a node.
type Process struct {
	// Heap is the memory of heap objects in bytes.
	Heap       int64 `json:"heap_bytes"`
	Goroutines int64 `json:"goroutines"`
}

// Ago returns how long before now something happened that the node reported. It uses the node's
// clock up to the report, and the database's clock since. now is by the database's clock.
func (n *Node) Ago(said, now time.Time) time.Duration {
	return n.At.Sub(said) + n.SilentFor(now)
}

// SilentFor returns how long before now the node was last seen, by the database's clock.
func (n *Node) SilentFor(now time.Time) time.Duration { return max(0, now.Sub(n.SeenAt)) }

// Silent reports whether the node is probably gone. now is by the database's clock.
func (n *Node) Silent(now time.Time) bool { return n.SilentFor(now) > Silence }

// Skew returns how far the node's clock is ahead of the database's. The time of the write, at most
// putTimeout, makes it smaller.
func (n *Node) Skew() time.Duration { return n.At.Sub(n.SeenAt) }

// How often nodes report, and when they are missed.
const (
	// Every is the interval between two reports, plus or minus a tenth.
	Every = 5 * time.Second
	// putTimeout bounds the write of one report.
	putTimeout = 2 * time.Second
	// Silence is the age of a report after which the node is silent: two reports are missing.
	Silence = 15 * time.Second
	// Keep is how long a silent node is shown.
	Keep = 24 * time.Hour
	// MaxNodes bounds Census.
	MaxNodes = 1000
)

// A Census is all nodes at one time.
type Census struct {
	// At is that moment by the database's clock.
	At time.Time
	// Revision is the newest there is, by the database itself.
	Revision int64
	// Nodes by name, those of one name by when they started; at most MaxNodes, those
	// that were seen last.
	Nodes []Node
}

// Compare orders nodes by name, then by start.
func Compare(a, b Node) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

// A Store keeps the last report of each node. Its methods change no revision and write no audit
// entry.
type Store interface {
	// PutNode replaces a node's report. It removes silent nodes of the same name, which this
	// process replaces, and nodes not seen for Keep.
	PutNode(ctx context.Context, n Node) error
	// RemoveNode removes a node. It is not an error if the node does not exist.
	RemoveNode(ctx context.Context, id string) error
	// Census returns all nodes.
	Census(ctx context.Context) (Census, error)
}
