package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

// childEnv names the task for which the test program runs as a child process.
const childEnv = "HEADGATE_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(context.Background(), what, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	servertest.Main(m)
}

// child runs the task of a child process on the database at a URL.
func child(ctx context.Context, what, url string) error {
	s, err := store.Open(ctx, store.Config{URL: url, Timeout: patient, Serve: what == "serve"})
	if err != nil {
		return err
	}
	switch what {
	case "migrate":
		err = s.Migrate(ctx)
	case "serve":
		fmt.Println("serving")
		_, err = io.Copy(io.Discard, os.Stdin) // until the parent closes it
	case "write":
		for i := 0; err == nil; i++ {
			slug := fmt.Sprintf("t%d", i)
			if err = writeOne(ctx, s, slug); err == nil {
				fmt.Println(slug) // acknowledged
			}
		}
	}
	if err != nil {
		return err
	}
	return s.Close()
}

// writeOne makes a tenant with a key: two edits.
func writeOne(ctx context.Context, s *store.Store, slug string) error {
	t, err := s.CreateTenant(ctx, tenants.Tenant{Slug: slug, Document: active(slug)}, audit.Entry{Action: "tenant.create"})
	if err != nil {
		return err
	}
	token := tenants.NewToken(tenants.TenantToken)
	_, err = s.CreateKey(ctx, tenants.Key{TenantID: t.ID, Name: slug, Hash: tenants.HashToken(token)}, audit.Entry{Action: "key.create"})
	return err
}

func active(name string) tenants.Document {
	return tenants.Document{
		Name: name, Status: tenants.Active, TimeZone: "UTC", BillingAnchorDay: 1, NoPolicy: tenants.Allow,
		RouteOptional: true, // as tenants of before migration 15 have it
	}
}

// A process is a child that runs.
type process struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func start(t *testing.T, what, url string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), program, url)}
	p.Env = append(os.Environ(), childEnv+"="+what)
	p.Stderr = os.Stderr
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// escape is a path as a DSN writes it.
func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }
