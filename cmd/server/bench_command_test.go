package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/load"
)

// benchedNode starts a node with the tenant bench. Each user of the tenant may send 40 checks
// with GET per hour, and any number with other methods.
func benchedNode(t *testing.T) (node *running, key string) {
	t.Helper()
	node = start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_LOG_LEVEL": "error"})
	operator := node.await(node.out, operatorKeyLine)[1]
	made := call(t, operator, "POST", node.origin+"/v1/plans",
		`{"slug": "bench", "draft": {"name": "bench", "policies": [{"slug": "per-user", "match": {"methods": ["GET"]}, "count_by": ["user"],
			"limits": [{"name": "hourly", "algorithm": "fixed_window", "quota": 40, "window": "1h"}]}]}}`).want(t, 201)
	call(t, operator, "POST", node.origin+"/v1/plans/bench/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	call(t, operator, "POST", node.origin+"/v1/tenants", `{"slug": "bench", "tenant": {"require_route": false, "name": "bench", "plan": "bench"}}`).want(t, 201)
	var made2 struct{ Token string }
	call(t, operator, "POST", node.origin+"/v1/tenants/bench/keys", `{"name": "bench", "scopes": ["check"]}`).want(t, 201).into(t, &made2)
	return node, made2.Token
}

// printed returns the number with a name in the report of headgate bench.
func printed(t *testing.T, report, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` +([0-9.]+)`).FindStringSubmatch(report)
	if m == nil {
		t.Fatalf("the report has no %q:\n%s", name, report)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBenchCommand(t *testing.T) {
	t.Parallel()
	node, key := benchedNode(t)
	used := func(user string) bool {
		a := call(t, key, "POST", node.origin+"/v1/check", `{"method": "GET", "path": "/", "cost": 0, "attributes": {"user": "`+user+`"}}`)
		return !strings.Contains(a.body, `"remaining":40`)
	}
	settings := map[string]string{"HEADGATE_BENCH_KEY": key}
	bench := func(args ...string) (string, error) {
		all := append([]string{"bench", "--url", node.origin, "--tenant", "bench", "--duration", "300ms", "--connections", "3"}, args...)
		return command(t, settings, "", all...)
	}

	report, err := bench("--mode", "peek", "--keys", "1")
	if err != nil {
		t.Fatal(err)
	}
	if used("bench-00000000") || strings.Contains(report, "WARNING") || printed(t, report, "denied") != 0 {
		t.Errorf("a peek charged:\n%s", report)
	}

	report, err = bench("--keys", "2")
	if err != nil {
		t.Fatal(err)
	}
	if !used("bench-00000000") || used("bench-00000002") {
		t.Error("the keys charged are not the first two")
	}
	if !strings.Contains(report, "WARNING: each check charges tenant bench") ||
		!strings.Contains(report, "policy per-user, limit hourly: 40 in 1h0m0s") {
		t.Errorf("the report does not say what is charged:\n%s", report)
	}
	allowed, deniedChecks := printed(t, report, "allowed"), printed(t, report, "denied")
	if allowed+deniedChecks == 0 || allowed > 80 || (deniedChecks > 0 && allowed < 40) {
		t.Errorf("%v allowed and %v denied, of 2 keys with 40 each", allowed, deniedChecks)
	}
	for _, name := range []string{"checks/s", "p50", "max"} {
		if printed(t, report, name) <= 0 {
			t.Errorf("%s is not above 0:\n%s", name, report)
		}
	}
	if sized := strings.Contains(report, "for 10000 checks/s plan "); sized != (deniedChecks == 0) {
		t.Errorf("a sizing with %v checks denied: %t\n%s", deniedChecks, sized, report)
	}

	report, err = bench("--keys", "100000000")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(report, "checks/s at 3 connections with ") || !strings.Contains(report, "for 10000 checks/s plan ") {
		t.Errorf("no sizing:\n%s", report)
	}

	report, err = bench("--method", "POST")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(report, "no limiter is measured") || !strings.Contains(report, "No sizing: no limit applied") {
		t.Errorf("a sizing without a limit:\n%s", report)
	}

	report, err = bench("--batch", "10", "--keys", "1000", "--rate", "200")
	if err != nil {
		t.Fatal(err)
	}
	checks := printed(t, report, "allowed") + printed(t, report, "denied")
	if due := checks/10 + printed(t, report, "not sent in time"); due != 60 {
		t.Errorf("%v requests were due of 200 a second for 300 ms:\n%s", due, report)
	}
}

func TestBenchRefusesWhatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	node, key := benchedNode(t)
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && r.Header.Get("User-Agent") == "" { // a request of the load, and not the first check
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, `{"allowed":true,"limits":[]}`)
	}))
	t.Cleanup(broken.Close)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := map[string]string{"HEADGATE_BENCH_KEY": key}
	for name, c := range map[string]struct {
		settings map[string]string
		args     []string
		usage    bool
		want     string
	}{
		"no key":           {nil, nil, true, "HEADGATE_BENCH_KEY"},
		"a wrong key":      {map[string]string{"HEADGATE_BENCH_KEY": "hgk_nothing"}, nil, false, "401"},
		"a foreign tenant": {with, []string{"--tenant", "demo"}, false, "40"},
		"no tenant":        {with, []string{"--tenant", ""}, true, "tenant"},
		"a long duration":  {with, []string{"--duration", "6m"}, true, "--duration"},
		"a large batch":    {with, []string{"--batch", "1001"}, true, "--batch"},
		"no connections":   {with, []string{"--connections", "0"}, true, "--connections"},
		"a rate":           {with, []string{"--rate", "NaN"}, true, "--rate"},
		"an address":       {with, []string{"--url", "localhost"}, true, "--url"},
		"errors":           {map[string]string{"HEADGATE_BENCH_KEY_FILE": file}, []string{"--url", broken.URL}, false, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"bench", "--url", node.origin, "--tenant", "bench", "--duration", "100ms"}, c.args...)
			report, err := command(t, c.settings, "", args...)
			if err == nil || errors.As(err, new(usageError)) != c.usage || !strings.Contains(fmt.Sprint(err, report), c.want) {
				t.Errorf("%v, want %q in it (usage: %t)\n%s", err, c.want, c.usage, report)
			}
			if strings.Contains(fmt.Sprint(err, report), key) {
				t.Error("the key is shown")
			}
		})
	}
}

func TestSizing(t *testing.T) {
	t.Parallel()
	result := func(c load.Counts, unsent int64) *load.Result {
		r := &load.Result{Counts: c, Unsent: unsent}
		for range c.Decided() {
			r.Latency.Add(3 * time.Millisecond)
		}
		return r
	}
	good := load.Counts{Allowed: 100}
	closed := &benchCommand{Connections: 64}
	for want, got := range map[string]string{
		// 10,000 / (0.7 * 4,000) = 3.6
		"about 4000 checks/s at 64 connections with p99 3.00 ms; for 10000 checks/s plan 4,": closed.sizing(result(good, 0), 4000, true),

		"with p50 3.00 ms;":         (&benchCommand{}).sizing(result(load.Counts{Allowed: 99}, 0), 4000, true), // too few for a p99
		"All nodes share one Redis": (&benchCommand{}).sizing(result(good, 0), 4000, true),
		"leave out --rate":          (&benchCommand{Rate: 100}).sizing(result(good, 0), 100, true),
		// The load had more checks than the node can decide.
		"plan 143,":                (&benchCommand{Rate: 1000}).sizing(result(good, 5), 100, true),
		"No sizing: a peek":        (&benchCommand{Mode: "peek"}).sizing(result(good, 0), 100, true),
		"No sizing: not":           (&benchCommand{}).sizing(result(load.Counts{Allowed: 10, Unavailable: 1}, 0), 100, true),
		"No sizing: no limit":      (&benchCommand{}).sizing(result(good, 0), 100, false),
		"No sizing: 7 checks were": (&benchCommand{}).sizing(result(load.Counts{Allowed: 100, Denied: 7}, 0), 100, true),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func terminalTo(out io.Writer) cli.Terminal { return cli.Terminal{Stdout: out, Stderr: io.Discard} }

// The report has separate latencies for decided checks and for checks with status 503. It does
// not print a percentile that would be the maximum.
func TestBenchReport(t *testing.T) {
	t.Parallel()
	r := &load.Result{Elapsed: time.Second, Counts: load.Counts{Allowed: 1000, Unavailable: 99}}
	for range 1000 {
		r.Latency.Add(2 * time.Millisecond)
	}
	for range 99 {
		r.UnavailableLatency.Add(time.Second)
	}
	var out strings.Builder
	if err := (&benchCommand{}).report(terminalTo(&out), r, true); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"p50": 2, "p90": 2, "p99": 2, "p99.9": 2, "max": 2, "503 p50": 1000, "503 p90": 1000, "503 max": 1000,
	} {
		if got := printed(t, out.String(), name); got != want {
			t.Errorf("%s is %v ms, want %v", name, got, want)
		}
	}
	if strings.Contains(out.String(), "503 p99") {
		t.Errorf("a p99 of 99 samples:\n%s", out.String())
	}
	*r = load.Result{Elapsed: time.Second, Counts: load.Counts{Allowed: 999}}
	for range 999 {
		r.Latency.Add(2 * time.Millisecond)
	}
	out.Reset()
	if err := (&benchCommand{}).report(terminalTo(&out), r, true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "p99.9") || strings.Contains(out.String(), "503 ") || printed(t, out.String(), "p99") != 2 {
		t.Errorf("of 999 decided checks:\n%s", out.String())
	}
}

func TestHelpOfBench(t *testing.T) {
	t.Parallel()
	help := strings.Join(strings.Fields(helpOf(t, "bench")), " ")
	if !strings.Contains(help, "Default: http://127.0.0.1:8080.") || strings.Contains(help, "Every flag is also") {
		t.Errorf("the default of --url is missing, or flags are said to be settings:\n%s", help)
	}
}
