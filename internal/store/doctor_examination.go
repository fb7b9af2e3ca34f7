package store

import (
	"context"
	"time"
)

// An Examination describes the database for headgate doctor.
type Examination struct {
	Version string // version of the Postgres server, or of the SQLite library
	Schema  MigrationStatus
	// Ahead is the time by which the clock of the database is ahead of the clock of this process;
	// negative if it is behind. It is wrong by at most RoundTrip.
	Ahead, RoundTrip time.Duration
}

// Examine returns an Examination of the database. It only reads.
func (s *Store) Examine(ctx context.Context) (e Examination, err error) {
	if e.Schema, err = s.MigrationStatus(ctx); err != nil {
		return e, err
	}
	var micros int64
	err = s.read(ctx, func(ctx context.Context) error {
		sent := s.now()
		err := s.reader.QueryRowContext(ctx, `SELECT `+s.engine.version()+`, `+s.engine.clock()).Scan(&e.Version, &micros)
		e.RoundTrip = s.now().Sub(sent)
		e.Ahead = time.UnixMicro(micros).Sub(sent.Add(e.RoundTrip / 2))
		return err
	})
	return e, s.fail(err, "examine the database")
}
