package nodes

import (
	"cmp"
	"context"
	"time"
)

// A Node is the last report of one process. Its times are those of the node's own clock unless stated otherwise; Ago
// converts them.
type Node struct {
	// ID identifies the process: a UUID that is created at its start. A restarted node has a new ID.
	ID string `json:"-"`
	// Name is the host name and the listen address, like "web-1:8080".
	Name string `json:"-"`
	// Version is the release of Headgate, GoVersion that of Go.
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
	// StartedAt is when the process started to serve.
	StartedAt time.Time `json:"started_at,omitzero"`
	// At is when the process made the report.
	At time.Time `json:"at,omitzero"`
	// SeenAt is when the database stored the report, by the database's clock. The Store sets it.
	SeenAt time.Time `json:"-"`
	// Unreadable means that this release cannot decode the report. Only ID, Name and SeenAt are set then. The Store
	// sets it.
	Unreadable bool `json:"-"`
	// Draining means that the node is stopping.
	Draining bool `json:"draining,omitempty"`

	// Limiter is LimiterRedis or LimiterInProcess.
	Limiter string `json:"limiter"`
	// Sharing is HEADGATE_NODES: the number of nodes that share the limits while Redis is unavailable.
	Sharing int `json:"sharing"`
	// Redis is the state of Redis as this node sees it; zero if the node has no Redis.
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
	// Revision is the revision of the snapshot that the node decides with.
	Revision int64 `json:"revision"`
	// ConfirmedAt is when the database last confirmed that the revision is the newest.
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	// Listening means that the node receives notifications; otherwise it only polls.
	Listening bool `json:"listening"`
	// Problems is the number of objects that cannot be used as stored.
	Problems int `json:"problems,omitempty"`
	// Held is the reason why the node did not load a newer state of the database; "" if it did.
	Held string `json:"held,omitempty"`
	// Failing means that the last read of the database failed.
	Failing bool `json:"failing,omitempty"`
}

// Redis is the state of Redis as one node sees it.
type Redis struct {
	// Reachable is false while the node does not call Redis. Then the failure modes of the policies decide.
	Reachable bool `json:"reachable"`
	// Since is when Reachable last changed.
	Since time.Time `json:"since,omitzero"`
	// Err is the reason why Redis is not reachable; "" while it is.
	Err string `json:"error,omitempty"`
	// Refusal is set while Redis is reachable but rejects writes.
	Refusal Refusal `json:"refusal,omitzero"`
	// LostAt is when the node last found that Redis had lost data; zero if never. Lost says what happened.
	LostAt time.Time `json:"lost_at,omitzero"`
	Lost   string    `json:"lost,omitempty"`
	// UsedMemory and MaxMemory of the Redis server are in bytes. 0 means unknown; for MaxMemory also unlimited.
	UsedMemory int64 `json:"used_memory,omitempty"`
	MaxMemory  int64 `json:"max_memory,omitempty"`
	// Keys lists the tenants that use the largest part of their maximum number of keys, the fullest first.
	Keys []TenantKeys `json:"keys,omitempty"`
	// Version is the release of the Redis server. It and MaxMemoryPolicy are "" if unknown.
	Version         string `json:"version,omitempty"`
	MaxMemoryPolicy string `json:"maxmemory_policy,omitempty"`
	// Mismatches is the number of requests since the start that the script and the Go reference decided differently.
	// It should stay 0.
	Mismatches int64 `json:"mismatches,omitempty"`
	// BreakerOpened is how often the circuit breaker opened since the start.
	BreakerOpened int64 `json:"breaker_opened,omitempty"`
	// RoundTrips measures the successful calls of Redis since the last report: those of checks or, without checks,
	// one probe per second. The time includes waiting for a connection, but not waiting for other checks of the
	// batch.
	RoundTrips Latency `json:"round_trips,omitzero"`
}

// TenantKeys is the estimated number of live counters of a tenant in Redis, and the maximum. If the tenant is full,
// all new partitions of a limit share one counter.
type TenantKeys struct {
	Tenant string `json:"tenant"` // slug
	Live   int64  `json:"live"`
	Max    int64  `json:"max"`
	Full   bool   `json:"full,omitempty"`
}

// A Refusal describes a store that is reachable but rejects writes. The zero value means that it accepts writes.
type Refusal struct {
	// Since is when the store rejected the first write.
	Since time.Time `json:"since"`
	// Code is the class of the error, for metrics: READONLY, OOM, read_only, full.
	Code string `json:"code"`
	// Answer is the store's last error message.
	Answer string `json:"answer"`
}

// Database is the state of the database as one node sees it.
type Database struct {
	// Refusal is set while the database rejects writes.
	Refusal Refusal `json:"refusal,omitzero"`
	// Report is the duration of the previous report's write. On SQLite, it includes the wait for the writer
	// connection and for the disk. 0: unknown.
	Report time.Duration `json:"-"`
	// Polls measures the reads of the revision since the last report, about two per second.
	Polls Latency `json:"polls,omitzero"`
}

// Latency measures the calls of an interval. P50 and P99 are at least the true values, and at most about 1% plus one
// microsecond above them. They are 0 if there were no calls.
type Latency struct {
	P50   time.Duration `json:"-"`
	P99   time.Duration `json:"-"`
	Calls int64         `json:"calls"`
}

// Counts is the state of the decision counts that are not in the database yet.
type Counts struct {
	// Decisions is the number of decisions in Interval, which ends one or two seconds before the report. Interval is
	// 0 in the first report.
	Decisions int64         `json:"decisions,omitempty"`
	Interval  time.Duration `json:"-"`
	// WaitingRows is the number of rows that are not in the database yet. WaitingRefusals of them are kept denials.
	WaitingRows     int64 `json:"waiting_rows,omitempty"`
	WaitingRefusals int64 `json:"waiting_refusals,omitempty"`
	// Waiting is the age of the oldest row that is not in the database. Nodes flush every second, so more than ten
	// seconds mean that the database does not accept counts.
	Waiting time.Duration `json:"-"`
	// FlushedAt is the time of the last successful write; zero if there was none.
	FlushedAt time.Time `json:"flushed_at,omitzero"`
	// FailingSince is the time of the first of the current consecutive failures; zero if the last write succeeded.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Failure      string    `json:"failure,omitempty"`
	// Folded is the number of counts that were merged into other rows to save memory. NotKept is the number of
	// denials that were dropped for the same reason. Both are since the start.
	Folded  int64 `json:"folded,omitempty"`
	NotKept int64 `json:"not_kept,omitempty"`
}

// Rate returns the number of decisions per second, or 0 if it is unknown.
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

// Ago returns how long before now an event in the report happened. said is the time of the event by the node's clock;
// now is by the database's clock. Ago uses the node's clock up to the report and the database's clock after it.
func (n *Node) Ago(said, now time.Time) time.Duration {
	return n.At.Sub(said) + n.SilentFor(now)
}

// SilentFor returns the time since the node's last report, by the database's clock.
func (n *Node) SilentFor(now time.Time) time.Duration { return max(0, now.Sub(n.SeenAt)) }

// Silent reports whether the node has missed several reports, so that it probably stopped. now is by the database's
// clock.
func (n *Node) Silent(now time.Time) bool { return n.SilentFor(now) > Silence }

// Skew returns how far the node's clock is ahead of the database's clock. It is too low by the duration of the
// report's write, which is at most putTimeout.
func (n *Node) Skew() time.Duration { return n.At.Sub(n.SeenAt) }

// How often nodes report, and when a node without reports is silent.
const (
	// Every is the interval between two reports, plus or minus a tenth.
	Every = 5 * time.Second
	// putTimeout bounds the write of one report.
	putTimeout = 2 * time.Second
	// Silence is the age of a report after which the node is silent: two reports are missing.
	Silence = 15 * time.Second
	// Keep is how long the report of a silent node is kept.
	Keep = 24 * time.Hour
	// MaxNodes is the maximum number of nodes in a Census.
	MaxNodes = 1000
)

// A Census contains the reports of all nodes at one time.
type Census struct {
	// At is the time of the census by the database's clock.
	At time.Time
	// Revision is the newest revision in the database.
	Revision int64
	// Nodes are ordered by name, then by start. If there are more than MaxNodes, they are the ones that were seen
	// last.
	Nodes []Node
}

// Compare orders nodes by name, then by start.
func Compare(a, b Node) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

// A Store stores the last report of each node. Its methods change no revision and write no audit entry.
type Store interface {
	// PutNode replaces the report of a node. It deletes the reports of silent nodes with the same name, because this
	// process replaces them, and of nodes that have not reported for Keep.
	PutNode(ctx context.Context, n Node) error
	// RemoveNode deletes the report of a node. It returns nil if there is none.
	RemoveNode(ctx context.Context, id string) error
	// Census returns the reports of all nodes.
	Census(ctx context.Context) (Census, error)
}
