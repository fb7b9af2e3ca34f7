//go:build !quick

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

// interrupt sends the process a signal to stop. The process must exit without an error.
func (p *process) interrupt() {
	p.t.Helper()
	if err := p.command.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
		if code := p.command.ProcessState.ExitCode(); code != 0 {
			p.t.Errorf("ended with %d\n%s", code, p.logs)
		}
	case <-time.After(patience):
		p.t.Fatalf("did not end within %s\n%s", patience, p.logs)
	}
}

// once runs the built binary in a folder to its end and returns its output.
func once(t *testing.T, folder string, settings map[string]string, args ...string) (string, error) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir, command.Stdout, command.Stderr = folder, &out, &out
	command.Env = []string{}
	for name, value := range settings {
		command.Env = append(command.Env, name+"="+value)
	}
	err = command.Run()
	return out.String(), err
}

type traffic struct {
	Total  struct{ Requests, Limited int64 }
	Points []struct {
		At     time.Time
		Counts struct{ Requests int64 }
	}
}

// week returns the traffic of the last eight days by hour. It waits until the hours of the
// generated history have been rolled up.
func (p *process) week(key, tenant string) (w traffic) {
	p.t.Helper()
	now := time.Now().UTC()
	url := fmt.Sprintf("%s/v1/analytics/traffic?step=hour&from=%s&to=%s", p.origin, now.Add(-8*24*time.Hour).Format(time.RFC3339), now.Format(time.RFC3339))
	if tenant != "" {
		url += "&tenant=" + tenant
	}
	eventually(p.t, "a week is rolled up", func() bool {
		a := call(p.t, key, "GET", url, "")
		if a.status != 200 {
			return false
		}
		a.into(p.t, &w)
		return true
	})
	return w
}

// The demo has a week of history and live traffic. A second start adds traffic for the time
// since the first. A reset deletes everything and starts again.
func TestDemo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	none := map[string]string{"HEADGATE_BOOTSTRAP_KEY": ""}
	node := launchIn(t, folder, none, "demo").serving()
	key := node.await(node.out, regexp.MustCompile(`operator key +(hg_op_\S+)`))[1]
	w := node.week(key, "")
	busy := 0
	for _, p := range w.Points {
		if p.Counts.Requests > 0 {
			busy++
		}
	}
	if busy < 7*24 || w.Total.Requests < 100_000 || w.Total.Limited < 1_000 {
		t.Errorf("%d busy hours, %+v", busy, w.Total)
	}
	sum := int64(0)
	for _, tenant := range []string{"demo-acme", "demo-bloom", "demo-cobalt"} {
		sum += node.week(key, tenant).Total.Requests
	}
	if after := node.week(key, "").Total.Requests; sum < w.Total.Requests || sum > after {
		t.Errorf("the three tenants had %d requests, all together %d before and %d after", sum, w.Total.Requests, after)
	}
	eventually(t, "live traffic is counted", func() bool { return node.week(key, "").Total.Requests > w.Total.Requests })

	// The printed curl command works.
	tenant := node.await(node.out, regexp.MustCompile(`tenant key +(hg_tn_\S+) +\(tenant demo-cobalt\)`))[1]
	for i := range 6 {
		want := 200
		if i == 5 {
			want = 429
		}
		call(t, tenant, "POST", node.origin+"/v1/check", `{"method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`).want(t, want)
	}

	before := node.week(key, "").Total.Requests
	node.interrupt()
	again := launchIn(t, folder, none, "demo").serving()
	if total := again.week(key, "").Total.Requests; total < before {
		t.Errorf("%d requests after it was started again, %d before", total, before)
	}
	// A reset does not delete a database while a node uses it.
	out, err := once(t, folder, nil, "demo", "--reset", "--addr", "127.0.0.1:0")
	if err == nil || !strings.Contains(out, "is served by another headgate") {
		t.Errorf("reset beside a running demo: %v\n%s", err, out)
	}
	again.interrupt()
	fresh := launchIn(t, folder, none, "demo", "--reset").serving()
	if newKey := fresh.await(fresh.out, regexp.MustCompile(`operator key +(hg_op_\S+)`))[1]; newKey == key {
		t.Error("the key is as before the reset")
	}
	fresh.interrupt()
}

// On Postgres and Redis, the demo fills an empty database and sends traffic. It does not start
// on a database with other data.
func TestDemoOnServers(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_SHUTDOWN_DELAY": "0s",
		"HEADGATE_REDIS_URL": servertest.Redis(t), "HEADGATE_REDIS_PREFIX": fmt.Sprintf("hg-%x:", rand.Uint64()), "HEADGATE_LIMITER_TIMEOUT": "30s",
	}
	node := launchIn(t, "", settings, "demo").serving()
	start := node.week(bootstrap, "").Total.Requests
	eventually(t, "live traffic is counted", func() bool { return node.week(bootstrap, "").Total.Requests > start })
	node.interrupt()

	settings["HEADGATE_DATABASE_URL"] = servertest.Postgres(t)
	others := launch(t, settings).serving()
	f := &cluster{t: t, nodes: []*process{others}}
	f.publish("pro", countedPolicies)
	others.interrupt()
	if out, err := once(t, t.TempDir(), settings, "demo", "--addr", "127.0.0.1:0"); err == nil || !strings.Contains(out, "did not make") {
		t.Errorf("on a database with other data: %v\n%s", err, out)
	}
}
