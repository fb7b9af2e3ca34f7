//go:build !quick

package servertest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/servertest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func tables(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var n int
	err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPostgresGivesEachTestAnEmptyDatabaseAndDropsIt(t *testing.T) {
	t.Parallel()
	var first string
	t.Run("first", func(t *testing.T) {
		first = servertest.Postgres(t)
		exec(t, connect(t, first), `CREATE TABLE a (id int)`)
	})
	if n := tables(t, connect(t, servertest.Postgres(t))); n != 0 {
		t.Errorf("a new database has %d tables", n)
	}
	_, err := pgx.Connect(t.Context(), first)
	var refused *pgconn.PgError
	const noSuchDatabase = "3D000"
	if !errors.As(err, &refused) || refused.Code != noSuchDatabase {
		t.Errorf("connecting to a finished test's database: %v, want SQLSTATE %s", err, noSuchDatabase)
	}
}

func TestTemplateIsPreparedOnceAndClonedForEachTest(t *testing.T) {
	t.Parallel()
	var prepared atomic.Int32
	template := servertest.NewTemplate(func(ctx context.Context, url string) error {
		prepared.Add(1)
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, `CREATE TABLE a (id int)`)
		return err
	})
	var clones sync.Map
	t.Run("group", func(t *testing.T) {
		for range 4 {
			t.Run("clone", func(t *testing.T) {
				t.Parallel()
				url := template.Clone(t)
				if _, twice := clones.LoadOrStore(url, true); twice {
					t.Error("two tests got the same clone")
				}
				if n := tables(t, connect(t, url)); n != 1 {
					t.Errorf("a clone has %d tables, want 1", n)
				}
			})
		}
	})
	if n := prepared.Load(); n != 1 {
		t.Errorf("prepared %d times", n)
	}
}

func TestPostgresProcessKeepsWhatWasCommittedOverACrash(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	conn := connect(t, server.URL())
	exec(t, conn, `CREATE TABLE a (id int)`)
	server.Stop()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a stopped server answered")
	}
	server.Start()
	if n := tables(t, connect(t, server.URL())); n != 1 {
		t.Errorf("after the restart there are %d tables, want 1", n)
	}
}

func TestPausedPostgresAnswersOnlyAfterResume(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	conn := connect(t, server.URL())
	server.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `SELECT 1`)
		answered <- err
	}()
	// A held server cannot answer, so this can only fail when it was not held.
	select {
	case err := <-answered:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	server.Resume()
	if err := <-answered; err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func TestStopEndsAPausedPostgres(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	server.Pause()
	server.Stop()
	server.Start()
	exec(t, connect(t, server.URL()), `SELECT 1`)
}
