package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
)

var durableInto = upsert{
	table:   "durable_states",
	columns: []string{"tenant", "cell", "part", "algorithm", "rev", "a", "b", "t", "at_us", "ends_us"},
	then: `ON CONFLICT (tenant, cell, part) DO UPDATE SET algorithm = excluded.algorithm, rev = excluded.rev,
		a = excluded.a, b = excluded.b, t = excluded.t, at_us = excluded.at_us, ends_us = excluded.ends_us
		WHERE excluded.at_us >= durable_states.at_us`,
}

// WriteJournal stores states of durable counters. A state replaces the stored state of the same
// key, unless the stored state has a later time. WriteJournal does not store states of deleted
// tenants. The states must be in the order of their keys.
func (s *Store) WriteJournal(ctx context.Context, states []enforcement.Stored) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		live, err := liveTenants(ctx, tx, states)
		if err != nil {
			return fmt.Errorf("look for deleted tenants: %w", err)
		}
		kept := slices.DeleteFunc(slices.Clone(states), func(s enforcement.Stored) bool { return !live[s.Key.Tenant] })
		return durableInto.run(ctx, tx, len(kept), func(i int) []any {
			k, c := &kept[i], &kept[i].State
			return []any{
				int64(k.Key.Tenant), int64(k.Key.Cell), k.Key.Partition[:], k.Algorithm.String(), c.Rev, c.A, c.B, c.T, k.At, k.Ends,
			}
		})
	})
	return s.fail(err, "write %d states of durable limits", len(states))
}

// liveTenants returns, for each tenant number in states, whether a tenant with that number
// exists.
func liveTenants(ctx context.Context, tx *sql.Tx, states []enforcement.Stored) (map[uint32]bool, error) {
	live := map[uint32]bool{}
	for i := range states {
		number := states[i].Key.Tenant
		if _, known := live[number]; known {
			continue
		}
		var found bool
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM tenants WHERE number = $1)`, int64(number)).Scan(&found); err != nil {
			return nil, err
		}
		live[number] = found
	}
	return live, nil
}

// endedFor is how long ReadJournal still returns the state of a counter after the end of that
// state. The margin is necessary because the clock of the limiter and the clock of this node can
// differ.
const endedFor = time.Hour

// ReadJournal returns at most limit states of durable counters, in the order of their keys. The
// first key in the result is greater than after. ReadJournal leaves out states that ended more than
// endedFor ago. If home is not "", it returns only states of tenants with this home.
func (s *Store) ReadJournal(ctx context.Context, home string, after enforcement.Key, limit int) (list []enforcement.Stored, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		rows, err := s.reader.QueryContext(ctx, `
			SELECT d.tenant, d.cell, d.part, d.algorithm, d.rev, d.a, d.b, d.t, d.at_us, d.ends_us, t.home
			FROM durable_states d JOIN tenants t ON t.number = d.tenant
			WHERE (d.tenant, d.cell, d.part) > ($1, $2, $3) AND ($4 = '' OR t.home = $4) AND d.ends_us > $5
			ORDER BY d.tenant, d.cell, d.part
			LIMIT $6`, int64(after.Tenant), int64(after.Cell), after.Partition[:], home, s.now().Add(-endedFor).UnixMicro(), limit)
		list, err = collect(rows, err, scanDurable)
		return err
	})
	return list, s.fail(err, "read the states of durable limits")
}

func scanDurable(r row) (s enforcement.Stored, err error) {
	var part []byte
	var algorithm string
	c := &s.State
	if err := r.Scan(&s.Key.Tenant, &s.Key.Cell, &part, &algorithm, &c.Rev, &c.A, &c.B, &c.T, &s.At, &s.Ends, &s.Home); err != nil {
		return s, err
	}
	copy(s.Key.Partition[:], part)
	// A later release may have stored an algorithm that this release does not support. The state of
	// such an algorithm is not the state of a bucket.
	s.Algorithm, _ = enforcement.ParseAlgorithm(algorithm)
	return s, nil
}
