package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/nodes"
)

// What nodes say of themselves is written beside the control plane, as counts
// are: no revision, no audit line, no hint. When it was written is told by the
// database's clock, which is one for all nodes.

// A nodeJSON is a node's report as a document. No member is ever given another
// meaning or unit: what changes gets another name.
type nodeJSON struct {
	Version   string           `json:"version"`
	GoVersion string           `json:"go_version"`
	StartedAt time.Time        `json:"started_at,omitzero"`
	At        time.Time        `json:"at,omitzero"`
	Draining  bool             `json:"draining,omitempty"`
	Limiter   string           `json:"limiter"`
	Sharing   int              `json:"sharing"`
	Redis     nodeRedisJSON    `json:"redis,omitzero"`
	Snapshot  nodeSnapshotJSON `json:"snapshot"`
	Database  nodeDatabaseJSON `json:"database"`
	Counts    nodeCountsJSON   `json:"counts"`
	Process   nodeProcessJSON  `json:"process"`
}

type nodeRedisJSON struct {
	Reachable       bool        `json:"reachable"`
	Since           time.Time   `json:"since,omitzero"`
	Err             string      `json:"error,omitempty"`
	Refusal         refusalJSON `json:"refusal,omitzero"`
	LostAt          time.Time   `json:"lost_at,omitzero"`
	Lost            string      `json:"lost,omitempty"`
	Version         string      `json:"version,omitempty"`
	MaxMemoryPolicy string      `json:"maxmemory_policy,omitempty"`
	Mismatches      int64       `json:"mismatches,omitempty"`
	BreakerOpened   int64       `json:"breaker_opened,omitempty"`
	RoundTrips      latencyJSON `json:"round_trips,omitzero"`
}

type refusalJSON struct {
	Since  time.Time `json:"since"`
	Code   string    `json:"code"`
	Answer string    `json:"answer"`
}

type nodeSnapshotJSON struct {
	Revision    int64     `json:"revision"`
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	Listening   bool      `json:"listening"`
	Problems    int       `json:"problems,omitempty"`
	Held        string    `json:"held,omitempty"`
	Failing     bool      `json:"failing,omitempty"`
}

type nodeDatabaseJSON struct {
	Refusal  refusalJSON `json:"refusal,omitzero"`
	ReportUS int64       `json:"report_us,omitempty"`
	Polls    latencyJSON `json:"polls,omitzero"`
}

type latencyJSON struct {
	P50US int64 `json:"p50_us"`
	P99US int64 `json:"p99_us"`
	Calls int64 `json:"calls"`
}

type nodeCountsJSON struct {
	Decisions       int64     `json:"decisions,omitempty"`
	IntervalUS      int64     `json:"interval_us,omitempty"`
	WaitingRows     int64     `json:"waiting_rows,omitempty"`
	WaitingRefusals int64     `json:"waiting_refusals,omitempty"`
	WaitingUS       int64     `json:"waiting_us,omitempty"`
	FlushedAt       time.Time `json:"flushed_at,omitzero"`
	FailingSince    time.Time `json:"failing_since,omitzero"`
	Failure         string    `json:"failure,omitempty"`
	Folded          int64     `json:"folded,omitempty"`
	NotKept         int64     `json:"not_kept,omitempty"`
}

type nodeProcessJSON struct {
	HeapBytes  int64 `json:"heap_bytes"`
	Goroutines int64 `json:"goroutines"`
}

func writeNode(n *nodes.Node) (string, error) {
	return writeJSON(nodeJSON{
		Version: n.Version, GoVersion: n.GoVersion, StartedAt: stored(n.StartedAt), At: stored(n.At),
		Draining: n.Draining, Limiter: n.Limiter, Sharing: n.Sharing,
		Redis: nodeRedisJSON{
			n.Redis.Reachable, stored(n.Redis.Since), n.Redis.Err, writeRefusal(n.Redis.Refusal), stored(n.Redis.LostAt), n.Redis.Lost, n.Redis.Version, n.Redis.MaxMemoryPolicy,
			n.Redis.Mismatches, n.Redis.BreakerOpened, writeLatency(n.Redis.RoundTrips),
		},
		Snapshot: nodeSnapshotJSON{
			n.Snapshot.Revision, stored(n.Snapshot.ConfirmedAt), n.Snapshot.Listening, n.Snapshot.Problems, n.Snapshot.Held, n.Snapshot.Failing,
		},
		Database: nodeDatabaseJSON{writeRefusal(n.Database.Refusal), n.Database.Report.Microseconds(), writeLatency(n.Database.Polls)},
		Counts: nodeCountsJSON{
			n.Counts.Decisions, n.Counts.Interval.Microseconds(), n.Counts.WaitingRows, n.Counts.WaitingRefusals, n.Counts.Waiting.Microseconds(),
			stored(n.Counts.FlushedAt), stored(n.Counts.FailingSince), n.Counts.Failure, n.Counts.Folded, n.Counts.NotKept,
		},
		Process: nodeProcessJSON{n.Process.Heap, n.Process.Goroutines},
	})
}

func writeRefusal(r nodes.Refusal) refusalJSON { return refusalJSON{stored(r.Since), r.Code, r.Answer} }

func writeLatency(l nodes.Latency) latencyJSON {
	return latencyJSON{l.P50.Microseconds(), l.P99.Microseconds(), l.Calls}
}

// readNode reads a report into n. Other than a plan's document, which must not
// be enforced in part, it is read as far as it is understood: while nodes are
// upgraded one by one, those of the older release show what newer ones say
// beside what they know, and newer ones show the older as they are. It is looked
// at by people, and decides nothing.
func readNode(doc string, n *nodes.Node) error {
	var in nodeJSON
	if err := json.Unmarshal([]byte(doc), &in); err != nil {
		return err
	}
	n.Version, n.GoVersion, n.StartedAt, n.At = in.Version, in.GoVersion, in.StartedAt, in.At
	n.Draining, n.Limiter, n.Sharing = in.Draining, in.Limiter, in.Sharing
	n.Redis = nodes.Redis{
		Reachable: in.Redis.Reachable, Since: in.Redis.Since, Err: in.Redis.Err, Refusal: nodes.Refusal(in.Redis.Refusal),
		LostAt: in.Redis.LostAt, Lost: in.Redis.Lost, Version: in.Redis.Version, MaxMemoryPolicy: in.Redis.MaxMemoryPolicy,
		Mismatches: in.Redis.Mismatches, BreakerOpened: in.Redis.BreakerOpened, RoundTrips: readLatency(in.Redis.RoundTrips),
	}
	n.Snapshot = nodes.Snapshot{
		Revision: in.Snapshot.Revision, ConfirmedAt: in.Snapshot.ConfirmedAt, Listening: in.Snapshot.Listening,
		Problems: in.Snapshot.Problems, Held: in.Snapshot.Held, Failing: in.Snapshot.Failing,
	}
	n.Database = nodes.Database{Refusal: nodes.Refusal(in.Database.Refusal), Report: microseconds(in.Database.ReportUS), Polls: readLatency(in.Database.Polls)}
	n.Counts = nodes.Counts{
		Decisions: in.Counts.Decisions, Interval: microseconds(in.Counts.IntervalUS),
		WaitingRows: in.Counts.WaitingRows, WaitingRefusals: in.Counts.WaitingRefusals, Waiting: microseconds(in.Counts.WaitingUS),
		FlushedAt: in.Counts.FlushedAt, FailingSince: in.Counts.FailingSince, Failure: in.Counts.Failure, Folded: in.Counts.Folded, NotKept: in.Counts.NotKept,
	}
	n.Process = nodes.Process{Heap: in.Process.HeapBytes, Goroutines: in.Process.Goroutines}
	return nil
}

func readLatency(l latencyJSON) nodes.Latency {
	return nodes.Latency{P50: microseconds(l.P50US), P99: microseconds(l.P99US), Calls: l.Calls}
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// PutNode keeps a node's last report. One transaction writes it and removes
// those that are gone: some milliseconds of the one writer of a SQLite file.
func (s *Store) PutNode(ctx context.Context, n nodes.Node) error {
	doc, err := writeNode(&n)
	if err != nil {
		return err
	}
	now := s.engine.clock()
	err = s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO nodes (id, name, seen_at_us, doc)
			VALUES ($1, $2, `+now+`, $3)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, seen_at_us = excluded.seen_at_us, doc = excluded.doc`,
			n.ID, n.Name, doc); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `
			DELETE FROM nodes
			WHERE id <> $1 AND (seen_at_us < `+now+` - $2 OR name = $3 AND seen_at_us < `+now+` - $4)`,
			n.ID, nodes.Keep.Microseconds(), n.Name, nodes.Silence.Microseconds())
		return err
	})
	return s.fail(err, "keep what node %s says", n.Name)
}

// RemoveNode removes a node.
func (s *Store) RemoveNode(ctx context.Context, id string) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM nodes WHERE id = $1`, id)
		return err
	})
	return s.fail(err, "remove node %s", id)
}

// Census gives all nodes, the newest revision and the database's clock, in one
// moment.
func (s *Store) Census(ctx context.Context) (nodes.Census, error) {
	var c nodes.Census
	err := s.read(ctx, func(ctx context.Context) error {
		tx, err := s.reader.BeginTx(ctx, s.engine.oneMoment())
		if err != nil {
			return err
		}
		defer tx.Rollback()
		c, err = census(ctx, tx, s.engine.clock())
		return err
	})
	return c, s.fail(err, "read what nodes say")
}

func census(ctx context.Context, tx *sql.Tx, clock string) (c nodes.Census, err error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT id, name, seen_at_us, doc FROM nodes
		ORDER BY seen_at_us DESC, id
		LIMIT $1`, nodes.MaxNodes)
	if c.Nodes, err = collect(rows, err, scanNode); err != nil {
		return nodes.Census{}, fmt.Errorf("read the nodes: %w", err)
	}
	slices.SortFunc(c.Nodes, nodes.Compare)
	// The clock after the rows, so that none was seen in the future.
	var at int64
	if err := tx.QueryRowContext(ctx, `SELECT n, `+clock+` FROM revision WHERE id = 1`).Scan(&c.Revision, &at); err != nil {
		return nodes.Census{}, fmt.Errorf("read the revision and the time: %w", err)
	}
	c.At = time.UnixMicro(at).UTC()
	return c, nil
}

// scanNode reads a row. A report that cannot be read at all is shown as that: the
// others are to be seen all the same.
func scanNode(r row) (n nodes.Node, err error) {
	var seen int64
	var doc string
	if err := r.Scan(&n.ID, &n.Name, &seen, &doc); err != nil {
		return n, err
	}
	if err := readNode(doc, &n); err != nil {
		n = nodes.Node{ID: n.ID, Name: n.Name, Unreadable: true}
	}
	n.SeenAt = time.UnixMicro(seen).UTC()
	return n, nil
}
