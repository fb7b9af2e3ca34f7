package nodes

import (
	"cmp"
	"context"
	"time"
)

// A Node is what one process said of itself in its last report. Instants are by
// its own clock unless they say otherwise; see Ago.
type Node struct {
	// ID of the process: a UUID that is made at its start, as in its batches of
	// counts. A node that starts again is another process.
	ID string `json:"-"`
	// Name is for people: host name and listen address, "web-1:8080".
	Name string `json:"-"`
	// Version of Headgate and of Go.
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
	// StartedAt is when the process began to serve.
	StartedAt time.Time `json:"started_at,omitzero"`
	// At is when it made the report.
	At time.Time `json:"at,omitzero"`
	// SeenAt is when the database took the report, by the database's clock. The
	// Store sets it.
	SeenAt time.Time `json:"-"`
	// Unreadable says that the report could not be read: only ID, Name and SeenAt
	// are set then. The Store sets it.
	Unreadable bool `json:"-"`
	// Draining: it was told to stop and finishes what it has begun.
	Draining bool `json:"draining,omitempty"`

	// Limiter that counts: LimiterRedis or LimiterInProcess.
	Limiter string `json:"limiter"`
	// Sharing is by how many nodes it thinks that its limits are shared while Redis
	// is away (HEADGATE_NODES).
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

// Snapshot is what a node enforces.
type Snapshot struct {
	// Revision in force.
	Revision int64 `json:"revision"`
	// ConfirmedAt is when the database last said that it is the newest.
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	// Listening for notifications; otherwise only polling tells of changes.
	Listening bool `json:"listening"`
	// Problems is how many tenants, plans, keys, overrides, list entries and blocks
	// cannot be used as they are stored.
	Problems int `json:"problems,omitempty"`
	// Held says why a newer world is not taken; "" when none waits.
	Held string `json:"held,omitempty"`
	// Failing: the last attempt to ask the database or to load from it went wrong.
	Failing bool `json:"failing,omitempty"`
}

// Redis is what a node knows of the Redis that it counts in.
type Redis struct {
	// Reachable is false while the breaker is open: Redis is not asked then, and
	// the policies' on_failure answers.
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
	// Version of the server and its maxmemory-policy, "" while unknown.
	Version         string `json:"version,omitempty"`
	MaxMemoryPolicy string `json:"maxmemory_policy,omitempty"`
	// Mismatches is how many requests the script and the reference decided
	// differently since the start. It should stay 0.
	Mismatches int64 `json:"mismatches,omitempty"`
	// BreakerOpened is how often the breaker opened since the start.
	BreakerOpened int64 `json:"breaker_opened,omitempty"`
	// RoundTrips are the calls that Redis answered since the report before: those
	// that checks made, and while there are none, one question for the time a
	// second. Each is timed from the moment at which it is handed to the client, so
	// waiting for a connection is in it, and waiting for a batch to fill is not.
	RoundTrips Latency `json:"round_trips,omitzero"`
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

// Database is what a node knows of its database.
type Database struct {
	// Refusal is set while the database refuses to write.
	Refusal Refusal `json:"refusal,omitzero"`
	// Report is how long the write of the report before this one took, until its
	// commit was acknowledged: on SQLite with the wait for the one writer and for
	// the disk. 0 when that is not known: in a first report, or when the one before
	// was not written.
	Report time.Duration `json:"-"`
	// Polls are the questions for the newest revision that were answered since the
	// report before, about two a second: the shortest read there is.
	Polls Latency `json:"polls,omitzero"`
}

// Latency of the calls of an interval. Both durations are at least the true one,
// and at most an eighth and a microsecond above it; they are 0 without calls.
type Latency struct {
	P50   time.Duration `json:"-"`
	P99   time.Duration `json:"-"`
	Calls int64         `json:"calls"`
}

// Counts is what a node counted, on its way to the database.
type Counts struct {
	// Decisions in Interval, and how long that is. The last of its seconds is a
	// second or two before the report. Interval is 0 in a first report.
	Decisions int64         `json:"decisions,omitempty"`
	Interval  time.Duration `json:"-"`
	// WaitingRows are not in the database yet. WaitingRefusals of them are refusals
	// with their explanation.
	WaitingRows     int64 `json:"waiting_rows,omitempty"`
	WaitingRefusals int64 `json:"waiting_refusals,omitempty"`
	// Waiting is the age of the oldest of them. A flush comes every second, so above
	// ten the database does not take them.
	Waiting time.Duration `json:"-"`
	// FlushedAt is when counts were last written; zero: never yet.
	FlushedAt time.Time `json:"flushed_at,omitzero"`
	// FailingSince is when writing them began to fail, and Failure the last error;
	// zero while it goes well.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Failure      string    `json:"failure,omitempty"`
	// Folded are counts that found no room in memory and are only in the sums above
	// them, NotKept refusals that found none, both since the start.
	Folded  int64 `json:"folded,omitempty"`
	NotKept int64 `json:"not_kept,omitempty"`
}

// Rate is how many decisions the node made in a second; 0 while that is not known.
func (c Counts) Rate() float64 {
	if c.Interval <= 0 {
		return 0
	}
	return float64(c.Decisions) / c.Interval.Seconds()
}

// Process is what the node takes of its machine.
type Process struct {
	// Heap is the memory of live objects and of those not yet swept, in bytes.
	Heap       int64 `json:"heap_bytes"`
	Goroutines int64 `json:"goroutines"`
}

// Ago is how long before a moment something was that the node said: from its
// own clock until it reported, and by the database's clock since. now is by the
// database's clock.
func (n *Node) Ago(said, now time.Time) time.Duration {
	return n.At.Sub(said) + n.SilentFor(now)
}

// SilentFor is how long before a moment, by the database's clock, the node was
// last seen.
func (n *Node) SilentFor(now time.Time) time.Duration { return max(0, now.Sub(n.SeenAt)) }

// Silent reports whether a node was not seen for so long that it is probably
// gone. now is by the database's clock.
func (n *Node) Silent(now time.Time) bool { return n.SilentFor(now) > Silence }

// Skew is how far the node's clock is ahead of the database's, negative: behind.
// The report's way to the database makes it look behind by at most putTimeout, and
// by some milliseconds usually.
func (n *Node) Skew() time.Duration { return n.At.Sub(n.SeenAt) }

// How often nodes report, and when they are missed.
const (
	// Every is the time between two reports of a node, a tenth more or less.
	Every = 5 * time.Second
	// putTimeout bounds the write of one report.
	putTimeout = 2 * time.Second
	// Silence is how long a node is not seen before it is called silent: two
	// reports are missing then.
	Silence = 15 * time.Second
	// Keep is how long a silent node is shown.
	Keep = 24 * time.Hour
	// MaxNodes bounds what Census gives.
	MaxNodes = 1000
)

// A Census is all nodes at one moment.
type Census struct {
	// At is that moment by the database's clock.
	At time.Time
	// Revision is the newest there is, by the database itself.
	Revision int64
	// Nodes by name, those of one name by when they started; at most MaxNodes, those
	// that were seen last.
	Nodes []Node
}

// Compare orders nodes by name, those of one name by when they started.
func Compare(a, b Node) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

// A Store keeps the last report of each node. Its methods change no revision and
// leave no audit line.
type Store interface {
	// PutNode keeps a node's report in the place of its last one, seen now. It
	// removes the silent ones of the same name, of which this process took the
	// place, and those that were not seen for Keep.
	PutNode(ctx context.Context, n Node) error
	// RemoveNode removes a node; one that is not there is no error.
	RemoveNode(ctx context.Context, id string) error
	// Census gives all nodes.
	Census(ctx context.Context) (Census, error)
}
