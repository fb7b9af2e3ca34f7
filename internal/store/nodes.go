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

// A transaction that writes the report of a node does not raise the revision, writes no audit line,
// and sends no notification.

// storeTimes rounds the times of a report to the precision of the databases.
func storeTimes(n *nodes.Node) {
	for _, at := range []*time.Time{
		&n.StartedAt, &n.At, &n.Redis.Since, &n.Redis.Refusal.Since, &n.Redis.LostAt, &n.Snapshot.ConfirmedAt,
		&n.Database.Refusal.Since, &n.Counts.FlushedAt, &n.Counts.FailingSince,
	} {
		*at = stored(*at)
	}
}

// PutNode stores the report of a node and replaces the node's previous report. In the same
// transaction, PutNode deletes the reports of nodes that have not reported for nodes.Keep. It also
// deletes the reports of silent nodes with the same name, because they are earlier processes of
// this node.
func (s *Store) PutNode(ctx context.Context, n nodes.Node) error {
	storeTimes(&n)
	doc, err := writeJSON(&n)
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

// RemoveNode deletes the report of a node that is stopping.
func (s *Store) RemoveNode(ctx context.Context, id string) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM nodes WHERE id = $1`, id)
		return err
	})
	return s.fail(err, "remove node %s", id)
}

// Census returns the reports of all nodes, the newest revision, and the time of the database's
// clock. It reads all three in one transaction, so that they belong to the same moment.
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
	return c, s.fail(err, "read the reports of the nodes")
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
	// The query reads the database's clock after the reports. Otherwise, a report could have a
	// later time than Census.At.
	var at int64
	if err := tx.QueryRowContext(ctx, `SELECT n, `+clock+` FROM revision WHERE id = 1`).Scan(&c.Revision, &at); err != nil {
		return nodes.Census{}, fmt.Errorf("read the revision and the time: %w", err)
	}
	c.At = time.UnixMicro(at).UTC()
	return c, nil
}

// scanNode scans a row with the report of a node. During an upgrade, nodes of two releases read
// each other's reports, so scanNode ignores JSON members that this release does not have. If
// scanNode cannot decode a report, it returns a node with Unreadable set and no error, so that the
// other reports can still be read.
func scanNode(r row) (n nodes.Node, err error) {
	var seen int64
	var doc string
	if err := r.Scan(&n.ID, &n.Name, &seen, &doc); err != nil {
		return n, err
	}
	if err := json.Unmarshal([]byte(doc), &n); err != nil {
		n = nodes.Node{ID: n.ID, Name: n.Name, Unreadable: true}
	}
	n.SeenAt = time.UnixMicro(seen).UTC()
	return n, nil
}
