package nodes

import (
	"cmp"
	"context"
	"time"
)

// A Node is the last report of one process. Its times are times of the node's own clock; only
// SeenAt is not. Ago computes how long ago a time of the report was.
type Node struct {
	// ID identifies the process: a UUID that each process creates when it starts. After a restart,
	// a node has a new ID.
	ID string `json:"-"`
	// Name is the host name and the listen address, like "web-1:8080".
	Name string `json:"-"`
	// Version is the release of Headgate, and GoVersion is the release of Go.
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
	// StartedAt is the time at which the process started to serve checks.
	StartedAt time.Time `json:"started_at,omitzero"`
	// At is the time at which the process made the report, by the node's clock.
	At time.Time `json:"at,omitzero"`
	// SeenAt is the time at which the database stored the report, by the clock of the database. The
	// Store sets it.
	SeenAt time.Time `json:"-"`
	// Unreadable says that this release cannot decode the report. Only ID, Name and SeenAt are
	// then set. The Store sets Unreadable.
	Unreadable bool `json:"-"`
	// Draining means that the node is stopping.
	Draining bool `json:"draining,omitempty"`

	// Limiter is LimiterRedis or LimiterInProcess.
	Limiter string `json:"limiter"`
	// Sharing is the setting HEADGATE_NODES: the number of nodes among which the quotas are
	// divided while Redis is unavailable. 0 means that the node uses the number of nodes that
	// report.
	Sharing int `json:"sharing"`
	// Redis is the state of Redis as this node sees it. It is zero if the node does not use
	// Redis.
	Redis Redis `json:"redis,omitzero"`

	// Durable is the state of the counters of durable limits.
	Durable Durable `json:"durable,omitzero"`

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

// Snapshot is the state of the snapshot from which a node decides.
type Snapshot struct {
	// Revision is the revision of the snapshot.
	Revision int64 `json:"revision"`
	// ConfirmedAt is the last time at which the database confirmed that no newer revision exists.
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	// Listening says that the node receives notifications about changes. If it is false, the node
	// only polls.
	Listening bool `json:"listening"`
	// Problems is the number of objects in the snapshot whose stored rows are invalid.
	Problems int `json:"problems,omitempty"`
	// Held is the reason why the node rejected the newest stored state; "" if the node accepted
	// it.
	Held string `json:"held,omitempty"`
	// Failing says that the last attempt to read the database failed.
	Failing bool `json:"failing,omitempty"`
}

// Redis is the state of Redis as one node sees it.
type Redis struct {
	// Reachable is true while the node calls Redis. It is false after calls have failed; the
	// failure modes of the policies then decide.
	Reachable bool `json:"reachable"`
	// Since is the time of the last change of Reachable.
	Since time.Time `json:"since,omitzero"`
	// Err is the error that made Redis unreachable; "" while Redis is reachable.
	Err string `json:"error,omitempty"`
	// Refusal is nonzero while Redis is reachable but rejects writes.
	Refusal Refusal `json:"refusal,omitzero"`
	// LostAt is the time at which the node last detected that Redis had lost data; zero if
	// never. Lost describes what happened.
	LostAt time.Time `json:"lost_at,omitzero"`
	Lost   string    `json:"lost,omitempty"`
	// UsedMemory and MaxMemory are the used and the maximum memory of the Redis server in
	// bytes. 0 means that the number is unknown. For MaxMemory, 0 can also mean that there is
	// no maximum.
	UsedMemory int64 `json:"used_memory,omitempty"`
	MaxMemory  int64 `json:"max_memory,omitempty"`
	// Keys lists the tenants whose number of keys is closest to their maximum. The tenant that is
	// closest comes first.
	Keys []TenantKeys `json:"keys,omitempty"`
	// Version is the release of the Redis server; "" if unknown. MaxMemoryPolicy is its
	// eviction policy; "" if unknown.
	Version         string `json:"version,omitempty"`
	MaxMemoryPolicy string `json:"maxmemory_policy,omitempty"`
	// Mismatches is the number of requests since the start for which the Redis script and the Go
	// code made different decisions. A correct release has 0.
	Mismatches int64 `json:"mismatches,omitempty"`
	// BreakerOpened is the number of times since the start that the circuit breaker opened.
	BreakerOpened int64 `json:"breaker_opened,omitempty"`
	// RoundTrips contains the durations of the successful calls of Redis since the last report. The
	// calls decide checks. While there are no checks, the node makes one probe call per second. A
	// duration includes the wait for a connection. It does not include the time during which a
	// check waits to share a call with other checks.
	RoundTrips Latency `json:"round_trips,omitzero"`
}

// Durable is the state of the counters of durable limits on one node.
type Durable struct {
	// LostSince is the time at which Redis lost the counters. It is zero if the counters are not
	// lost, or are restored.
	LostSince time.Time `json:"lost_since,omitzero"`
	// Waiting is the number of counter states that are not in the database yet. WaitingSince is the
	// time of the oldest change among them.
	Waiting      int       `json:"waiting,omitempty"`
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	// NotKept is the number of counter changes that the node has dropped since it started, because
	// too many counter states waited for the database.
	NotKept int64 `json:"not_kept,omitempty"`
}

// TenantKeys compares two numbers: the estimated number of live counters that a tenant has in Redis
// (Live), and the maximum (Max). Full is set when the maximum is reached. All new partitions of a
// limit then share one counter.
type TenantKeys struct {
	Tenant string `json:"tenant"` // slug
	Live   int64  `json:"live"`
	Max    int64  `json:"max"`
	Full   bool   `json:"full,omitempty"`
}

// A Refusal says since when a reachable store, Redis or the database, has rejected writes. The
// zero value means that it accepts writes.
type Refusal struct {
	// Since is the time of the first rejected write.
	Since time.Time `json:"since"`
	// Code is the class of the error, as in metrics: READONLY or OOM for Redis, read_only or full
	// for the database.
	Code string `json:"code"`
	// Answer is the message about the last rejected write. For Redis, it is the error reply,
	// which may be shortened. For the database, it is the message of the problem.
	Answer string `json:"answer"`
}

// Database is the state of the database as one node sees it.
type Database struct {
	// Refusal is nonzero while the database rejects writes.
	Refusal Refusal `json:"refusal,omitzero"`
	// Report is the time that the write of the previous report took. It is 0 if that write failed,
	// or if there was no previous report. With SQLite, it includes the wait for the only connection
	// that writes, and for the disk.
	Report time.Duration `json:"-"`
	// Polls contains the durations of the reads of the revision since the last report. The node
	// makes about two reads per second.
	Polls Latency `json:"polls,omitzero"`
}

// Latency describes the durations of a number of calls. P50 and P99 are percentiles. They are
// never below the true values, and at most about 1% plus one microsecond above them. They are 0
// if there were no calls.
type Latency struct {
	P50   time.Duration `json:"-"`
	P99   time.Duration `json:"-"`
	Calls int64         `json:"calls"`
}

// Counts describes the numbers of decisions that the node counts, and the backlog of counts
// that are not in the database yet.
type Counts struct {
	// Decisions is the number of decisions within a time span. The span has the length Interval
	// and ends one or two seconds before the report. In the first report, both are 0.
	Decisions int64         `json:"decisions,omitempty"`
	Interval  time.Duration `json:"-"`
	// WaitingRows is the number of rows that are not in the database yet. WaitingRefusals is the
	// number of kept denials among them.
	WaitingRows     int64 `json:"waiting_rows,omitempty"`
	WaitingRefusals int64 `json:"waiting_refusals,omitempty"`
	// Waiting is the age of the oldest row that is not in the database yet. Nodes write counts
	// every second. An age of more than ten seconds means that the database does not accept
	// counts.
	Waiting time.Duration `json:"-"`
	// FlushedAt is the time of the last successful write; zero if there was none.
	FlushedAt time.Time `json:"flushed_at,omitzero"`
	// FailingSince is the time of the first failed write after the last successful one. It is zero
	// if the last write succeeded. Failure is the error of the last write.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Failure      string    `json:"failure,omitempty"`
	// Folded is the number of rows since the start that were combined with other rows to save
	// memory. NotKept is the number of kept denials since the start that were dropped to save
	// memory.
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

// Process describes the resources that a node uses.
type Process struct {
	// Heap is the memory of heap objects in bytes.
	Heap       int64 `json:"heap_bytes"`
	Goroutines int64 `json:"goroutines"`
}

// Ago returns the time from an event in the report to now. said is the time of the event by the
// node's clock. now is a time of the database's clock. The result is the sum of two durations: from
// the event to the report by the node's clock, and from the report to now by the database's clock.
func (n *Node) Ago(said, now time.Time) time.Duration {
	return n.At.Sub(said) + n.SilentFor(now)
}

// SilentFor returns the time from the node's last report to now. Both are times of the
// database's clock.
func (n *Node) SilentFor(now time.Time) time.Duration { return max(0, now.Sub(n.SeenAt)) }

// Silent reports whether the node has not reported for more than Silence, so that it probably
// stopped. now is a time of the database's clock.
func (n *Node) Silent(now time.Time) bool { return n.SilentFor(now) > Silence }

// Skew returns by how much the node's clock is ahead of the database's clock. The result is
// negative if the node's clock is behind. It is too low by the duration of the report's write,
// which is at most putTimeout.
func (n *Node) Skew() time.Duration { return n.At.Sub(n.SeenAt) }

// How often nodes report, and after what time without a report a node counts as silent.
const (
	// Every is the interval between two reports, plus or minus a tenth.
	Every = 5 * time.Second
	// putTimeout is the maximum duration of the write of one report.
	putTimeout = 2 * time.Second
	// Silence is the time without a report after which a node counts as silent. At least two
	// reports are then missing.
	Silence = 15 * time.Second
	// Keep is how long the last report of a silent node stays in the Store.
	Keep = 24 * time.Hour
	// MaxNodes is the maximum number of nodes in a Census.
	MaxNodes = 1000
)

// A Census contains the reports of all nodes at one moment.
type Census struct {
	// At is the time of the Census by the database's clock.
	At time.Time
	// Revision is the newest revision in the database.
	Revision int64
	// Nodes is ordered by name, then by start time. If there are more than MaxNodes nodes,
	// Nodes contains those with the newest reports.
	Nodes []Node
}

// Compare orders nodes by name, then by start time.
func Compare(a, b Node) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

// A Store has the last report of each node. Its methods raise no revision and write no audit entry.
type Store interface {
	// PutNode stores the report n and replaces the node's previous report. PutNode also deletes two
	// kinds of reports. The first are reports of silent nodes with the same name, which are earlier
	// processes of the same node. The second are reports of nodes that have not reported for the
	// time Keep.
	PutNode(ctx context.Context, n Node) error
	// RemoveNode deletes the report of a node. It returns nil if there is none.
	RemoveNode(ctx context.Context, id string) error
	// Census returns the reports of all nodes.
	Census(ctx context.Context) (Census, error)
}
