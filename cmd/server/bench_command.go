package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/latency"
	"github.com/headgate/headgate/internal/load"
)

// benchKeySetting is the environment variable with the API key for headgate bench. There is no flag
// for the key, because every user of the machine can read the command line of a process.
const benchKeySetting = environmentPrefix + "BENCH_KEY"

// longestBench is the maximum duration of the load of headgate bench.
const longestBench = 5 * time.Minute

// benchCommand is headgate bench. It sends checks to a running node and measures their rate and
// latency.
type benchCommand struct {
	cli.Output
	URL         string        `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" setting:"false" help:"The node or load balancer."`
	KeyFile     string        `placeholder:"FILE" setting:"false" help:"File with an API key that may check for the tenant; default: HEADGATE_BENCH_KEY or HEADGATE_BENCH_KEY_FILE."`
	Tenant      string        `required:"" placeholder:"SLUG" setting:"false" help:"The tenant that is charged. Use one without real traffic."`
	Method      string        `default:"GET" setting:"false" help:"Method of each check."`
	Path        string        `default:"/" setting:"false" help:"Path of each check."`
	Mode        string        `default:"enforce" enum:"enforce,peek" setting:"false" help:"enforce charges like real traffic; peek charges nothing, and costs less."`
	Connections int           `default:"64" setting:"false" help:"How many connections send at once, at most 1024."`
	Duration    time.Duration `default:"10s" setting:"false" help:"How long to send, at most 5m."`
	Rate        float64       `default:"0" setting:"false" help:"Requests a second, sent at fixed times; a latency counts from when a request is due. 0: each connection sends again after an answer."`
	Keys        int           `default:"10000" setting:"false" help:"Number of random values of the attribute user: bench-00000000, ..."`
	Batch       int           `default:"1" setting:"false" help:"Checks in each request, at most 1000; more than 1 uses POST /v1/check/batch."`
}

// Help returns the text that --help shows after the flags.
func (benchCommand) Help() string {
	return "The checks are real unless the mode is peek: they use up the quota of the tenant, and they count in its analytics. " +
		"Their attribute user begins with bench-, so a limit that counts by user charges separate keys; " +
		"a limit of the whole tenant is shared with real traffic. " +
		"A bench on the node's own machine takes processor time from the node. " +
		"No flag of bench is an environment variable. " +
		"Ends with 0 only if every request was answered and at least one check was decided."
}

func (b benchCommand) Run(ctx context.Context, p program, t cli.Terminal) error {
	target, err := b.validate(p.getenv)
	if err != nil {
		return usageError{err}
	}
	first, err := b.peek(ctx, target)
	if err != nil {
		return err
	}
	announced := p.stdout
	if b.Format != "table" {
		announced = p.stderr
	}
	if err := b.announce(announced, first); err != nil {
		return err
	}
	begin := time.Now()
	stop := t.Progress("sending checks", b.Duration.Milliseconds(), func() int64 { return time.Since(begin).Milliseconds() })
	result, err := load.Run(ctx, load.Config{
		Dial: target.dial, Request: b.request(target), Checks: b.Batch,
		Connections: b.Connections, Rate: b.Rate, Duration: b.Duration,
	})
	stop()
	if err != nil {
		return fmt.Errorf("connect to %s: %w", target.url.Host, err)
	}
	if err := b.report(t, result, len(first.Limits) > 0); err != nil {
		return err
	}
	switch {
	case result.Failed > 0 && result.Err != nil:
		return fmt.Errorf("%d checks failed: %w", result.Failed, result.Err)
	case result.Failed > 0:
		return fmt.Errorf("%d checks failed: see the statuses", result.Failed)
	case result.Decided() == 0:
		return errors.New("no check was decided")
	}
	return nil
}

// A benchTarget is the node to measure: its base URL, and the API key with which headgate bench sends checks.
type benchTarget struct {
	url *url.URL
	key string
}

func (b *benchCommand) validate(getenv func(string) string) (benchTarget, error) {
	u, err := url.Parse(b.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" {
		return benchTarget{}, fmt.Errorf("--url: %q is not an address like http://127.0.0.1:8080", b.URL)
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/" // JoinPath needs an absolute path
	if b.Tenant == "" {
		return benchTarget{}, errors.New("--tenant: must not be empty")
	}
	for _, bound := range []struct {
		flag string
		err  error
	}{
		{"connections", within(b.Connections, 1, 1024)},
		{"duration", within(b.Duration, 100*time.Millisecond, longestBench)},
		{"keys", within(b.Keys, 1, load.MaxKeys)},
		{"batch", within(b.Batch, 1, 1000)},
	} {
		if bound.err != nil {
			return benchTarget{}, fmt.Errorf("--%s: %w", bound.flag, bound.err)
		}
	}
	if !(b.Rate >= 0 && b.Rate <= 1e6) { // the negation also rejects NaN
		return benchTarget{}, fmt.Errorf("--rate: is %v, and must be from 0 to 1000000", b.Rate)
	}
	key, err := secretFrom(getenv, benchKeySetting)
	if b.KeyFile != "" {
		var text []byte
		text, err = os.ReadFile(b.KeyFile)
		key = strings.TrimSpace(string(text))
	}
	switch {
	case err != nil:
		return benchTarget{}, err
	case key == "" || strings.ContainsAny(key, " \t\r\n"):
		return benchTarget{}, fmt.Errorf("no API key: set %s or --key-file", benchKeySetting)
	}
	return benchTarget{u, key}, nil
}

// check returns the JSON body of one check with the given mode.
func (b *benchCommand) check(mode string) string {
	text, _ := json.Marshal(map[string]any{ // cannot fail, because all values are strings
		"tenant": b.Tenant, "method": b.Method, "path": b.Path, "mode": mode, "attributes": map[string]string{"user": "bench-" + load.KeyPlace},
	})
	return string(text)
}

// request returns the request that every connection sends repeatedly.
func (b *benchCommand) request(t benchTarget) load.Request {
	path, body := "/v1/check", b.check(b.Mode)
	if b.Batch > 1 {
		path = "/v1/check/batch"
		body = `{"checks":[` + strings.Join(slices.Repeat([]string{body}, b.Batch), ",") + `]}`
	}
	return load.NewRequest(t.url.Host, t.url.JoinPath(path).EscapedPath(), body, b.Keys, "Authorization: Bearer "+t.key)
}

// dial opens a TCP or TLS connection to the target.
func (t benchTarget) dial(ctx context.Context) (net.Conn, error) {
	address := t.url.Host
	if t.url.Port() == "" {
		port := "80"
		if t.url.Scheme == "https" {
			port = "443"
		}
		address = net.JoinHostPort(t.url.Hostname(), port)
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if t.url.Scheme == "https" {
		return (&tls.Dialer{NetDialer: dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// A benchAnswer holds those parts of a response to a check that headgate bench uses.
type benchAnswer struct {
	Detail, Reason, Plan string
	Limits               []struct {
		Policy, Limit string
		Quota         int64
		WindowMS      int64 `json:"window_ms"`
	}
}

// peek sends one check in mode peek, which charges nothing. If the address, the key or the
// tenant is wrong, the command fails here, before the load begins.
func (b *benchCommand) peek(ctx context.Context, t benchTarget) (first benchAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body := strings.ReplaceAll(b.check("peek"), load.KeyPlace, "00000000")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.JoinPath("/v1/check").String(), strings.NewReader(body))
	if err != nil {
		return first, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+t.key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return first, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return first, err
	}
	if err := json.Unmarshal(text, &first); err != nil || (answer.StatusCode != http.StatusOK && !bytes.Contains(text, []byte(`"allowed":`))) {
		detail := cmp.Or(first.Detail, "not an answer of Headgate")
		return first, fmt.Errorf("%s answered the first check with %s: %s", t.url, answer.Status, detail)
	}
	return first, nil
}

// announce prints how much quota the load will charge.
func (b *benchCommand) announce(w io.Writer, first benchAnswer) error {
	var text strings.Builder
	how := "as fast as the answers come"
	if b.Rate > 0 {
		how = strconv.FormatFloat(b.Rate, 'f', -1, 64) + " requests/s"
	}
	fmt.Fprintf(&text, "%s %s at %s for %s: %d connections, %s, %d keys, %d in a request\n",
		b.Method, b.Path, b.URL, b.Duration, b.Connections, how, b.Keys, b.Batch)
	switch {
	case b.Mode == "peek":
		fmt.Fprintf(&text, "Nothing is charged (peek). Real traffic costs more.\n")
	case len(first.Limits) == 0:
		fmt.Fprintf(&text, "WARNING: no limit of tenant %s applies (%s), so nothing is charged and no limiter is measured.\n",
			b.Tenant, first.Reason)
	default:
		fmt.Fprintf(&text, "WARNING: each check charges tenant %s, and counts in its analytics:\n", b.Tenant)
		for _, l := range first.Limits {
			fmt.Fprintf(&text, "  policy %s, limit %s: %d in %s\n", l.Policy, l.Limit, l.Quota, time.Duration(l.WindowMS)*time.Millisecond)
		}
	}
	_, err := fmt.Fprintln(w, text.String())
	return err
}

// A benchReport is the result of headgate bench.
type benchReport struct {
	ElapsedMS    int64          `json:"elapsed_ms"`
	ChecksPerS   float64        `json:"checks_per_second"` // decisions per second
	Allowed      int64          `json:"allowed"`
	Denied       int64          `json:"denied"`
	Unavailable  int64          `json:"unavailable"` // answered with 503
	Degraded     int64          `json:"degraded"`
	Failed       int64          `json:"failed"`
	Unsent       int64          `json:"requests_not_sent_in_time"` // only with a rate
	Statuses     map[int]int64  `json:"requests_by_status"`
	Latency      quantileValues `json:"latency_ms"`
	Unavailables quantileValues `json:"unavailable_latency_ms"` // of requests answered with 503
	Sizing       string         `json:"sizing"`
}

// quantileValues maps the name of a quantile, or "max", to its value in milliseconds. It has no
// entry for a quantile with too few measurements.
type quantileValues map[string]float64

func quantilesOf(h *latency.Histogram) quantileValues {
	values := quantileValues{}
	for _, q := range quantiles {
		if h.Count() >= q.samples {
			values[q.name] = inMS(h.Quantile(q.q))
		}
	}
	if h.Count() > 0 {
		values["max"] = inMS(h.Max())
	}
	return values
}

// report prints the measured rates and latencies. limited is set if a limit applied to the checks.
func (b *benchCommand) report(t cli.Terminal, r *load.Result, limited bool) error {
	perSecond := float64(r.Decided()) / r.Elapsed.Seconds()
	report := benchReport{
		r.Elapsed.Milliseconds(), math.Round(perSecond), r.Allowed, r.Denied, r.Unavailable, r.Degraded, r.Failed, r.Unsent, r.Statuses,
		quantilesOf(&r.Latency), quantilesOf(&r.UnavailableLatency), b.sizing(r, perSecond, limited),
	}
	return b.Text(t, report, report.text(b.Rate > 0))
}

// text returns the report for people. rated is set if the requests were sent at a fixed rate.
func (r *benchReport) text(rated bool) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	row("checks/s", "%.0f", r.ChecksPerS)
	row("allowed", "%d", r.Allowed)
	row("denied", "%d", r.Denied)
	row("unavailable (503)", "%d", r.Unavailable)
	row("degraded", "%d", r.Degraded)
	row("failed", "%d", r.Failed)
	if rated {
		row("not sent in time", "%d requests", r.Unsent)
	}
	statuses := make([]string, 0, len(r.Statuses))
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		statuses = append(statuses, fmt.Sprintf("%d: %d", status, r.Statuses[status]))
	}
	row("answers", "%s", strings.Join(statuses, ", "))
	for _, of := range []struct {
		prefix string
		values quantileValues
	}{{"", r.Latency}, {"503 ", r.Unavailables}} {
		for _, q := range quantiles {
			if ms, ok := of.values[q.name]; ok {
				row(of.prefix+q.name, "%.2f ms", ms)
			}
		}
		if ms, ok := of.values["max"]; ok {
			row(of.prefix+"max", "%.2f ms", ms)
		}
	}
	_ = table.Flush() // cannot fail: it writes to memory
	return text.String() + "\n" + r.Sizing + "\n"
}

// quantiles are the quantiles in the report. A quantile is reported only if there are at least
// samples measurements. With fewer measurements, it would equal the maximum.
var quantiles = []struct {
	name    string
	q       float64
	samples int64
}{{"p50", 0.5, 1}, {"p90", 0.9, 10}, {"p99", 0.99, 100}, {"p99.9", 0.999, 1000}}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func inMilliseconds(d time.Duration) string {
	return strconv.FormatFloat(inMS(d), 'f', 2, 64) + " ms"
}

const (
	// sizedFor is the load, in checks per second, for which sizing computes the number of nodes.
	sizedFor = 10_000
	// sizedShare is the part of its capacity that each node should use under this load.
	sizedShare = 0.7
)

// sizing returns a sentence that says how many nodes a load of sizedFor needs. It takes the
// measured rate as the capacity of one node. With --rate, the real capacity may be higher, because
// the load was limited. limited is set if a limit of the plan applied to the checks.
func (b *benchCommand) sizing(r *load.Result, perSecond float64, limited bool) string {
	latency := "p50 " + inMilliseconds(r.Latency.Quantile(0.5))
	if r.Latency.Count() >= 100 {
		latency = "p99 " + inMilliseconds(r.Latency.Quantile(0.99))
	}
	switch {
	case r.Failed > 0 || r.Unavailable > 0 || r.Degraded > 0 || perSecond == 0:
		return "No sizing: not every check was decided by its limits."
	case b.Mode == "peek":
		return "No sizing: a peek costs less than real traffic."
	case !limited:
		return "No sizing: no limit applied, so no limiter was measured. Choose a --method and --path that a policy matches."
	case r.Denied > 0:
		return fmt.Sprintf("No sizing: %d checks were denied, which costs less than to allow them. "+
			"Use more --keys or a plan with larger limits.", r.Denied)
	case b.Rate > 0 && r.Unsent == 0:
		return fmt.Sprintf("Sizing: this carries %.0f checks/s at %d connections with %s; leave out --rate to find how many it carries at most.",
			perSecond, b.Connections, latency)
	}
	nodes := math.Ceil(sizedFor / (sizedShare * perSecond))
	return fmt.Sprintf("Sizing: one node of this kind carries about %.0f checks/s at %d connections with %s; "+
		"for %d checks/s plan %.0f, each at most %.0f%% busy (if %s is one node).\n"+
		"Few connections do not show saturation: raise --connections until checks/s no longer rises. "+
		"All nodes share one Redis: check that it can carry the whole load.",
		perSecond, b.Connections, latency, sizedFor, nodes, 100*sizedShare, b.URL)
}
