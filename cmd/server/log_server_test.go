//go:build !quick

package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// A log target that accepts nothing blocks no check, not even while Redis is
// away and every check has something to log, and it does not keep the process
// from ending.
func TestBlockedLogBlocksNoCheck(t *testing.T) {
	t.Parallel()
	redis := servertest.StartRedis(t)
	reader, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer stderr.Close()
	settings := map[string]string{
		"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_REDIS_URL": redis.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap,
		"HEADGATE_DATABASE_URL": "sqlite://" + t.TempDir() + "/headgate.db", "HEADGATE_LOG_LEVEL": "debug",
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, out: newOutput(), logs: newOutput(), stop: cancel, stopped: make(chan error, 1)}
	p := program{getenv: func(name string) string { return settings[name] }, stdin: strings.NewReader(""), stdout: r.out, stderr: stderr}
	go func() { r.stopped <- p.run(ctx, []string{"serve"}) }()
	t.Cleanup(func() { r.end() })
	r.origin = r.await(r.out, servesAt)[1]

	check := func() int {
		return call(t, bootstrap, "POST", r.origin+"/v1/check", `{"tenant": "demo", "method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`).status
	}
	if status := check(); status != http.StatusOK {
		t.Fatalf("with Redis: %d", status)
	}
	// A write beyond the capacity of the pipe blocks all writes until the end.
	go func() { _, _ = stderr.Write(make([]byte, 1<<20)) }()
	redis.Stop()
	for range 8 {
		if status := check(); status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Errorf("with a full log pipe and no Redis: %d", status)
		}
	}
	if err := r.end(); err != nil {
		t.Errorf("the node ended with %v", err)
	}
}
