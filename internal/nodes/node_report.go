package nodes

import (
	"cmp"
	"context"
	"time"
)

// A Node is the last report of one process. Unless stated otherwise, its times are times of the
// node's own clock. Ago computes how long ago they were.
type Node struct {
	// ID identifies the process: a UUID that each process creates when it starts. After a restart,
	// a node has a new ID.
	ID string `json:"-"`
	// Name is the host name and the listen address, like "web-1:8080".
	Name string `json:"-"`
	// Version is the release of Headgate, GoVersion that of Go.
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
	// StartedAt is the time at which the process started to serve.
	StartedAt time.Time `json:"started_at,omitzero"`
	// At is the time at which the process made the report.
	At time.Time `json:"at,omitzero"`
	// SeenAt is the time at which the database stored the report, by the clock of the database. The
	// Store sets it.
	SeenAt time.Time `json:"-"`
	// Unreadable says that this release cannot decode the report. Then only ID, Name and SeenAt are
	// set. The Store sets it.
	Unreadable bool `json:"-"`
	// Draining means that the node is stopping.
	Draining bool `json:"draining,omitempty"`

	// Limiter is LimiterRedis or LimiterInProcess.
	Limiter string `json:"limiter"`
	// Sharing is the setting HEADGATE_NODES: the number of nodes among which the quotas are divided
	// while Redis is unavailable. 0 means that the node counts the nodes.
	Sharing int `json:"sharing"`
	// Redis is the state of Redis as this node sees it. It is zero if the node does not use Redis.
	Redis Redis `json:"redis,omitzero"`

	// Durable is the state of the durable limits.
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
	// Problems is the number of objects in the snapshot that cannot be used as stored.
	Problems int `json:"problems,omitempty"`
	// Held is the reason for which the node rejected the newest stored state; "" if it did not.
	Held string `json:"held,omitempty"`
	// Failing says that the last read of the database failed.
	Failing bool `json:"failing,omitempty"`
}

// Redis is the state of Redis as one node sees it.
type Redis struct {
	// Reachable is false while the node makes no calls to Redis, because earlier calls failed.
	// Meanwhile the failure modes of the policies decide.
	Reachable bool `json:"reachable"`
	// Since is the time at which Reachable last changed.
	Since time.Time `json:"since,omitzero"`
	// Err is the reason why Redis is not reachable; "" while it is.
	Err string `json:"error,omitempty"`
	// Refusal is nonzero while Redis is reachable but rejects writes.
	Refusal Refusal `json:"refusal,omitzero"`
	// LostAt is the time at which the node last detected that Redis had lost data; zero if never.
	// Lost says what happened.
	LostAt time.Time `json:"lost_at,omitzero"`
	Lost   string    `json:"lost,omitempty"`
	// UsedMemory and MaxMemory are the used and the maximum memory of the Redis server in bytes. 0
	// means unknown, and for MaxMemory also unlimited.
	UsedMemory int64 `json:"used_memory,omitempty"`
	MaxMemory  int64 `json:"max_memory,omitempty"`
	// Keys lists the tenants that are closest to their maximum number of keys, the fullest first.
	Keys []TenantKeys `json:"keys,omitempty"`
	// Version is the release of the Redis server. It and MaxMemoryPolicy are "" if unknown.
	Version         string `json:"version,omitempty"`
	MaxMemoryPolicy string `json:"maxmemory_policy,omitempty"`
	// Mismatches is the number of requests since the start that the Redis script and the Go code
	// decided differently. It should stay 0.
	Mismatches int64 `json:"mismatches,omitempty"`
	// BreakerOpened is the number of times since the start that the circuit breaker opened.
	BreakerOpened int64 `json:"breaker_opened,omitempty"`
	// RoundTrips contains the durations of the successful calls of Redis since the last report.
	// These are the calls for checks, or one probe per second if there were no checks. A duration
	// includes the wait for a connection. It does not include the wait for other checks that share
	// the call.
	RoundTrips Latency `json:"round_trips,omitzero"`
}

// Durable is the state of the durable limits on one node.
type Durable struct {
	// LostSince is the time since which the counters are lost and not restored yet; zero while they are not.
	LostSince time.Time `json:"lost_since,omitzero"`
	// Waiting is the number of states that are not in the database yet. WaitingSince is the time of the oldest change.
	Waiting      int       `json:"waiting,omitempty"`
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	// NotKept is the number of changes since the start that were dropped because too many states waited.
	NotKept int64 `json:"not_kept,omitempty"`
}

// TenantKeys is the estimated number of live counters that a tenant has in Redis, and the maximum.
// When the maximum is reached, all new partitions of a limit share one counter.
type TenantKeys struct {
	Tenant string `json:"tenant"` // slug
	Live   int64  `json:"live"`
	Max    int64  `json:"max"`
	Full   bool   `json:"full,omitempty"`
}

// A Refusal says since when a reachable store has rejected writes. The zero value means that it
// accepts writes.
type Refusal struct {
	// Since is when the store rejected the first write.
	Since time.Time `json:"since"`
	// Code is the class of the error, as in metrics: READONLY or OOM for Redis, read_only or full
	// for the database.
	Code string `json:"code"`
	// Answer is the message of the last error that the store returned.
	Answer string `json:"answer"`
}

// Database is the state of the database as one node sees it.
type Database struct {
	// Refusal is nonzero while the database rejects writes.
	Refusal Refusal `json:"refusal,omitzero"`
	// Report is the time that the write of the previous report took; 0 if unknown. With SQLite, it
	// includes the wait for the connection that writes, and for the disk.
	Report time.Duration `json:"-"`
	// Polls contains the durations of the reads of the revision since the last report. There are
	// about two per second.
	Polls Latency `json:"polls,omitzero"`
}

// Latency describes the durations of the calls in an interval. P50 and P99 are never below the true
// percentiles, and at most about 1% plus one microsecond above them. They are 0 if there were no
// calls.
type Latency struct {
	P50   time.Duration `json:"-"`
	P99   time.Duration `json:"-"`
	Calls int64         `json:"calls"`
}

// Counts describes the decision counts that are not in the database yet.
type Counts struct {
	// Decisions is the number of decisions in a time of the length Interval, which ends one or two
	// seconds before the report. In the first report, Interval is 0.
	Decisions int64         `json:"decisions,omitempty"`
	Interval  time.Duration `json:"-"`
	// WaitingRows is the number of rows that are not in the database yet. WaitingRefusals is the
	// number of kept denials among them.
	WaitingRows     int64 `json:"waiting_rows,omitempty"`
	WaitingRefusals int64 `json:"waiting_refusals,omitempty"`
	// Waiting is the age of the oldest row that is not in the database yet. Nodes write every
	// second. If it is more than ten seconds, the database does not accept counts.
	Waiting time.Duration `json:"-"`
	// FlushedAt is the time of the last successful write; zero if there was none.
	FlushedAt time.Time `json:"flushed_at,omitzero"`
	// FailingSince is the time of the first failed write since the last successful one; zero if the
	// last write succeeded.
	FailingSince time.Time `json:"failing_since,omitzero"`
	Failure      string    `json:"failure,omitempty"`
	// Folded is the number of rows since the start that were combined with others to save memory.
	// NotKept is the number of denials since the start that were dropped to save memory.
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

// Ago returns how long before now an event in the report happened. said is the time of the event by
// the node's clock; now is a time of the database's clock. Ago adds the time from the event to the
// report, by the node's clock, and the time from the report to now, by the database's clock.
func (n *Node) Ago(said, now time.Time) time.Duration {
	return n.At.Sub(said) + n.SilentFor(now)
}

// SilentFor returns the time since the node's last report, by the database's clock.
func (n *Node) SilentFor(now time.Time) time.Duration { return max(0, now.Sub(n.SeenAt)) }

// Silent reports whether so many reports of the node are missing that it probably stopped. now is a
// time of the database's clock.
func (n *Node) Silent(now time.Time) bool { return n.SilentFor(now) > Silence }

// Skew returns by how much the node's clock is ahead of the database's clock. The result is too low
// by the duration of the report's write, which is at most putTimeout.
func (n *Node) Skew() time.Duration { return n.At.Sub(n.SeenAt) }

// How often nodes report, and after what time without a report a node counts as silent.
const (
	// Every is the interval between two reports, plus or minus a tenth.
	Every = 5 * time.Second
	// putTimeout is the maximum time for the write of one report.
	putTimeout = 2 * time.Second
	// Silence is the time without a report after which a node counts as silent. Two reports are
	// then missing.
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
	// Nodes are ordered by name, then by start. If there are more than MaxNodes, Nodes contains
	// those with the newest reports.
	Nodes []Node
}

// Compare orders nodes by name, then by start.
func Compare(a, b Node) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

// A Store has the last report of each node. Its methods raise no revision and write no audit entry.
type Store interface {
	// PutNode stores the report n in place of the node's previous one. It also deletes the reports
	// of silent nodes with the same name, which are earlier processes of the same node, and of
	// nodes that have not reported for the time Keep.
	PutNode(ctx context.Context, n Node) error
	// RemoveNode deletes the report of a node. It returns nil if there is none.
	RemoveNode(ctx context.Context, id string) error
	// Census returns the reports of all nodes.
	Census(ctx context.Context) (Census, error)
}
