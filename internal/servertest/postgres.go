package servertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// statementDeadline is the maximum time of one CREATE or DROP DATABASE statement. It is long enough
// for a busy machine.
const statementDeadline = 60 * time.Second

// Postgres returns the URL of a new, empty database on the shared server. The database
// is dropped after the test, even if connections are open.
func Postgres(t testing.TB) string {
	t.Helper()
	return newDatabase(t, "")
}

// A Template is a database that is prepared once in a test process, by the
// first test that wants a copy. Declare it as a package variable:
//
//	var migrated = servertest.NewTemplate(func(ctx context.Context, url string) error {
//		return store.Migrate(ctx, url)
//	})
type Template struct {
	name func() (string, error)
}

// NewTemplate returns a Template. It starts no server. prepare receives an empty database
// and must close its connections before it returns.
func NewTemplate(prepare func(ctx context.Context, url string) error) *Template {
	return &Template{name: sync.OnceValues(func() (string, error) {
		ctx := context.Background()
		name, err := createDatabase(ctx, "")
		if err != nil {
			return "", err
		}
		shared.mu.Lock()
		shared.templates = append(shared.templates, name)
		shared.mu.Unlock()
		address, err := databaseURL(name)
		if err != nil {
			return "", err
		}
		if err := prepare(ctx, address); err != nil {
			return "", fmt.Errorf("prepare a template database: %w", err)
		}
		return name, nil
	})}
}

// Clone returns the URL of a new copy of the database. The copy is dropped after the test.
func (tp *Template) Clone(t testing.TB) string {
	t.Helper()
	name, err := tp.name()
	if err != nil {
		t.Fatal(err)
	}
	return newDatabase(t, name)
}

func newDatabase(t testing.TB, template string) string {
	t.Helper()
	name, err := createDatabase(context.Background(), template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dropDatabase(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	address, err := databaseURL(name)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// cloning allows only one CREATE DATABASE at a time. Postgres cannot copy a database that has
// connections, and copies load the disk.
var cloning sync.Mutex

func createDatabase(ctx context.Context, template string) (string, error) {
	name := "headgate_" + strings.ToLower(rand.Text())
	statement := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		statement += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	}
	cloning.Lock()
	defer cloning.Unlock()
	if err := onServer(ctx, statement); err != nil {
		return "", fmt.Errorf("create a test database: %w", err)
	}
	return name, nil
}

func dropDatabase(ctx context.Context, name string) error {
	err := onServer(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	if err != nil {
		return fmt.Errorf("drop a test database: %w", err)
	}
	return nil
}

// onServer runs one statement in the server's maintenance database. If the error is "object in
// use", onServer tries again, because Postgres may still count a connection that was just closed,
// or another process may be copying template1.
func onServer(ctx context.Context, statement string) error {
	address, err := postgresURL()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statementDeadline)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const objectInUse = "55006"
	for {
		_, err = conn.Exec(ctx, statement)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != objectInUse {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// databaseURL returns the URL of another database on the shared server.
func databaseURL(name string) (string, error) {
	address, err := postgresURL()
	if err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the URL of the shared postgres does not parse") // it holds a password
	}
	u.Path = "/" + name
	return u.String(), nil
}

func dropTemplates() {
	shared.mu.Lock()
	names := shared.templates
	shared.templates = nil
	own := shared.postgres != nil
	shared.mu.Unlock()
	if own {
		return // the server has stopped, and its data is deleted
	}
	for _, name := range names {
		_ = dropDatabase(context.Background(), name) // fails if the server has stopped; its data is then deleted
	}
}
