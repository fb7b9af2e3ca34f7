package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/deploy/recipes"
	"github.com/headgate/headgate/internal/load"
)

// The loads of the group ways. For the latency, wayRate requests per second are sent. For the
// processor time, each connection sends its next request as soon as it has the response to the
// previous one.
const (
	wayConnections = 16
	wayRate        = 500
)

// A way is an integration through which a check reaches Headgate: a gateway or a client. Each way
// is a row of a table in docs/gateways.md. name is the name of the way in the other tables of the
// page. wire is the label of its decisions in the metrics of Headgate.
type way struct{ name, wire string }

// A gatewayWay is a gateway recipe of deploy/ in front of noop.
type gatewayWay struct {
	way
	recipe, bare string // bare is the same gateway without Headgate, for comparison
}

var gatewayWays = []gatewayWay{
	{way{"nginx", "forward_auth"}, "nginx", "nginx"},
	{way{"HAProxy", "forward_auth"}, "HAProxy", "HAProxy"},
	{way{"Caddy", "forward_auth"}, "Caddy", "Caddy"},
	{way{"Traefik", "forward_auth"}, "Traefik", "Traefik"},
	{way{"Apache", "forward_auth"}, "Apache", "Apache"},
	{way{"Envoy", "forward_auth"}, "Envoy", "Envoy"},
	{way{"Envoy `ext_authz`", "envoy_ext_authz"}, "Envoy ext_authz", "Envoy"},
	{way{"Envoy `ratelimit`", "envoy_rate_limit"}, "Envoy ratelimit", "Envoy"},
	{way{quotaWay, "envoy_quota"}, "Envoy rate_limit_quota", "Envoy"},
}

const (
	// quotaWay is the name of the way in which Envoy holds quota, so that a request needs no call
	// to Headgate.
	quotaWay = "Envoy `rate_limit_quota`"
	// middlewareWay is the name of the way in which noop uses the middleware of the SDK for Go.
	middlewareWay = "an API in Go, with the middleware of the [SDK](sdks.md)"
)

// without returns the name of the contender that is the gateway without Headgate.
func (w *gatewayWay) without() string { return w.bare + ", without Headgate" }

// A callWay is a way in which a program calls Headgate itself. checks is the number of checks in
// one request.
type callWay struct {
	way
	checks int
	config func(s *service, checks int) load.Config
}

const (
	pipelined = 64
	checkWay  = "`POST /v1/check`"
)

var callWays = []callWay{
	{way{checkWay, "check"}, 1, callCheck},
	{way{"`POST /v1/check/batch`", "batch"}, batchSize, callBatch},
	{way{"`/v1/forward-auth`", "forward_auth"}, 1, callForwardAuth("?headers=forwarded",
		"X-Forwarded-Method: GET", "X-Forwarded-Uri: /api/things/42")},
	{way{"`/v1/forward-auth/…`", "forward_auth"}, 1, callForwardAuth("/api/things/42")},
	{way{"Envoy `ext_authz`", "envoy_ext_authz"}, 1, callAuthorization},
	{way{"Envoy `ratelimit`", "envoy_rate_limit"}, 1, callRateLimit},
	{way{"`HEADGATE.CHECK`", "resp"}, 1, callRESP(respCheck)},
	{way{"`HEADGATE.CHECK`, pipelined", "resp"}, pipelined, callRESP(respCheck)},
	{way{"`CL.THROTTLE`", "resp"}, 1, callRESP(respThrottle)},
	{way{"`CL.THROTTLE`, pipelined", "resp"}, pipelined, callRESP(respThrottle)},
}

// title returns the name of the row in the table.
func (w *callWay) title() string {
	if w.checks == 1 {
		return w.name
	}
	return fmt.Sprintf("%s, %d checks", w.name, w.checks)
}

// waysPolicy is a policy whose limit denies no check of the benchmark. It counts by ip, an
// attribute that all ways can send.
const waysPolicy = `{"slug": "per-address", "count_by": ["ip"], "limits": [{"algorithm": "token_bucket", "quota": 1000000000, "window": "1h"}]},
	{"slug": "throttle", "match": {"path": "/throttle/login"}, "count_by": ["key"],
	"limits": [{"algorithm": "token_bucket", "quota": 1000000000, "window": "1h"}]}`

// measureWays measures the cost of a check on each way: the latency at wayRate requests per second,
// and the processor time.
func (b *bench) measureWays(ctx context.Context) (err error) {
	headgate := *b.service(embedded)
	headgate.key, err = headgate.prepare(ctx, "ways", waysPolicy)
	if err != nil {
		return err
	}
	measured, err := b.startWays(ctx, &headgate)
	if err != nil {
		return err
	}
	rotation := func(title string, how shape) (map[string]series, error) {
		var contenders []contender
		for _, m := range measured {
			contenders = append(contenders, b.wayContender(&headgate, m, how))
		}
		return b.rotate(ctx, title, contenders)
	}
	b.results.waysAtRate, err = rotation(fmt.Sprintf("ways, %d requests/s", wayRate), shape{rate: wayRate, seconds: b.seconds})
	if err != nil {
		return err
	}
	// The load generator uses one thread, as in the group http.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b.results.waysFull, err = rotation("ways, full", shape{seconds: b.seconds})
	return err
}

// A measuredWay is a contender of the group ways. wire is "" for a gateway without Headgate.
type measuredWay struct {
	name, wire string
	service    *service // whose processor time is measured
	config     load.Config
}

// startWays starts all gateways and returns the contenders of the group ways.
func (b *bench) startWays(ctx context.Context, headgate *service) (measured []measuredWay, err error) {
	upstream := b.service(noop)
	through := func(name, wire string, s *service) {
		measured = append(measured, measuredWay{name, wire, s, load.Config{
			Dial: s.dial, Request: load.NewRequest(s.address, "/v1/check", checkBody, users),
		}})
	}
	through(noop, "", upstream)
	api, err := b.startMiddleware(headgate)
	if err != nil {
		return nil, err
	}
	through(middlewareWay, "check", api)
	started := map[string]bool{}
	for _, w := range gatewayWays {
		version, err := gatewayVersion(ctx, w.bare)
		if err != nil {
			return nil, err
		}
		if !started[w.bare] {
			started[w.bare] = true
			b.results.gateways = append(b.results.gateways, w.bare+" "+version)
			s, err := b.startGateway(w.bare, w.without(), headgate, upstream, true)
			if err != nil {
				return nil, err
			}
			through(w.without(), "", s)
		}
		s, err := b.startGateway(w.recipe, w.name, headgate, upstream, false)
		if err != nil {
			return nil, err
		}
		through(w.name, w.wire, s)
	}
	for _, w := range callWays {
		cfg := w.config(headgate, w.checks)
		cfg.Checks = w.checks
		measured = append(measured, measuredWay{called(w.title()), w.wire, headgate, cfg})
	}
	return measured, nil
}

// called returns the name of the contender for a callWay. The prefix is necessary, because a
// gateway can have the same name.
func called(name string) string { return "call of " + name }

// gatewayFailure is the maximum time in which a gateway must load its configuration.
const gatewayFailure = 30 * time.Second

// startGateway starts the gateway of a recipe in front of upstream. If bare is true, the gateway
// does not ask Headgate.
func (b *bench) startGateway(recipe, name string, headgate, upstream *service, bare bool) (*service, error) {
	r := recipes.Named(recipe)
	if err := os.Chmod(b.folder, 0o711); err != nil { //nolint:gosec // Apache reads headgate.lua as another user
		return nil, err
	}
	folder, err := os.MkdirTemp(b.folder, "gateway-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // as above
		return nil, err
	}
	ports, err := recipes.FreePorts(2)
	if err != nil {
		return nil, err
	}
	a := recipes.Addresses{
		Headgate: headgate.address, Upstream: upstream.address, Key: headgate.key,
		Gateway: fmt.Sprintf("127.0.0.1:%d", ports[0]), Inner: fmt.Sprintf("127.0.0.1:%d", ports[1]),
	}
	if r.GRPC {
		a.Headgate = headgate.grpc
	}
	var edits []string
	if recipe == "Envoy ratelimit" { // the local limit of this recipe would deny requests
		edits = []string{"max_tokens: 1000, tokens_per_fill: 1000", "max_tokens: 1000000, tokens_per_fill: 1000000"}
	}
	file, err := r.Write("deploy", folder, a, bare, edits...)
	if err != nil {
		return nil, err
	}
	command := r.Command(file)
	c, err := b.startIn(folder, name, nil, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	s := &service{name: name, pid: c.pid(), address: a.Gateway, behind: headgate}
	if bare {
		s.behind = nil
	}
	return s, errors.Join(c.listens(s.address), s.loads())
}

// loads waits until a gateway has loaded its routes. Traefik listens before it has loaded them, and
// then answers 404.
func (s *service) loads() error {
	end := time.Now().Add(gatewayFailure)
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		a, err := http.Post("http://"+s.address+"/v1/check", "application/json", strings.NewReader(strings.ReplaceAll(checkBody, load.KeyPlace, "00000000")))
		if err == nil {
			_ = a.Body.Close()
			if a.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("status %d", a.StatusCode)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not pass a request: %w", s.name, err)
		}
	}
}

// startMiddleware starts the no-op with the middleware of the SDK for Go.
func (b *bench) startMiddleware(headgate *service) (*service, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c, err := b.start(middlewareWay, []string{"GOGC=" + b.results.gogc, senderKey + "=" + headgate.key}, program,
		"serve", "-answers", b.folder, "-headgate", "http://"+headgate.address)
	if err != nil {
		return nil, err
	}
	s := &service{name: middlewareWay, pid: c.pid(), behind: headgate}
	s.address, err = c.await(servesAt)
	return s, err
}

var versionPattern = regexp.MustCompile(`\d+\.\d+\.\d+`)

// gatewayVersion returns the version of the program that runs a recipe.
func gatewayVersion(ctx context.Context, recipe string) (string, error) {
	program := recipes.Named(recipe).Command("")[0]
	argument := map[string]string{"caddy": "version", "traefik": "version", "envoy": "--version"}
	out, err := exec.CommandContext(ctx, program, cmp.Or(argument[program], "-v")).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s must be installed, as make bench-ways does it: %w", program, err)
	}
	return string(versionPattern.Find(out)), nil
}

// wayContender returns a contender for a way. Its measurement fails if the gateway passes requests
// without a check, as some gateways do while Headgate is slow.
func (b *bench) wayContender(headgate *service, m measuredWay, how shape) contender {
	cfg := m.config
	cfg.Rate, cfg.Connections, cfg.Duration = how.rate, wayConnections, time.Duration(how.seconds*float64(time.Second))
	return contender{m.name, func(ctx context.Context) (slot, error) {
		if m.name == quotaWay {
			if err := assigned(ctx, cfg); err != nil {
				return slot{}, err
			}
		}
		if m.wire == "" || m.name == quotaWay {
			return b.measure(ctx, m.service, func(ctx context.Context) (*load.Result, error) { return load.Run(ctx, cfg) })
		}
		decisions := fmt.Sprintf(`headgate_wire_decisions_total{outcome="allowed",wire=%q}`, m.wire)
		before, err := headgate.metric(ctx, decisions)
		if err != nil {
			return slot{}, err
		}
		var answered int64
		s, err := b.measure(ctx, m.service, func(ctx context.Context) (*load.Result, error) {
			r, err := load.Run(ctx, cfg)
			if r != nil {
				answered = r.Decided()
			}
			return r, err
		})
		if err != nil {
			return s, err
		}
		after, err := headgate.metric(ctx, decisions)
		if err == nil && (after-before < float64(answered) || s.failed > 0) {
			err = fmt.Errorf("%d checks were answered, %g of them by Headgate; %g%% failed", answered, after-before, 100*s.failed)
		}
		return s, err
	}}
}

// assigned sends requests through Envoy until Envoy holds so much quota that it denies no request.
func assigned(ctx context.Context, cfg load.Config) error {
	cfg.Duration = time.Second / 2
	for range 40 {
		r, err := load.Run(ctx, cfg)
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if r.Failed+r.Denied == 0 {
			return nil
		}
	}
	return errors.New("Envoy denies requests after 20 seconds")
}

// wayAddress is the client address in the checks that a callWay sends. checkBody has the same
// address.
const wayAddress = "203.0.113.9"

func callCheck(s *service, _ int) load.Config {
	return load.Config{Dial: s.dial, Request: checkRequest(s.address, s.key)}
}

func callBatch(s *service, _ int) load.Config {
	return load.Config{Dial: s.dial, Request: load.NewRequest(s.address, "/v1/check/batch", batchBody(), users, "Authorization: Bearer "+s.key)}
}

func callForwardAuth(suffix string, header ...string) func(*service, int) load.Config {
	return func(s *service, _ int) load.Config {
		header := append(slices.Clone(header), "Authorization: Bearer "+s.key, "X-Forwarded-For: "+wayAddress)
		return load.Config{Dial: s.dial, Request: load.NewRequest(s.address, "/v1/forward-auth"+suffix, "", 1, header...)}
	}
}

// respCheck and respThrottle are commands of RESP.
var (
	respCheck    = []string{"HEADGATE.CHECK", "-", "/api/things/42", "METHOD", "GET", "ip", wayAddress}
	respThrottle = []string{"CL.THROTTLE", "login:user123", "15", "30", "60"}
)

func callRESP(command []string) func(*service, int) load.Config {
	return func(s *service, checks int) load.Config {
		text := []byte(strings.Repeat(respCommand(command...), checks))
		return load.Config{Open: func(ctx context.Context) (load.Caller, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.resp)
			if err != nil {
				return nil, err
			}
			c := &respCaller{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), allowed: 1}
			if command[0] == "CL.THROTTLE" {
				c.allowed = 0
			}
			if end, ok := ctx.Deadline(); ok {
				_ = conn.SetDeadline(end)
			}
			if _, err := conn.Write([]byte(respCommand("AUTH", s.key))); err != nil {
				return nil, err
			}
			line, err := c.in.ReadString('\n')
			if line != "+OK\r\n" {
				return nil, fmt.Errorf("AUTH: %q, %w", line, err)
			}
			c.text, c.checks = text, checks
			return c, nil
		}}
	}
}

func respCommand(arguments ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(arguments))
	for _, a := range arguments {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	return text
}

// A respCaller sends a RESP command in pipelines. The first value of each reply is an integer.
type respCaller struct {
	conn    net.Conn
	in      *bufio.Reader
	text    []byte
	checks  int
	allowed int64 // the first value of a reply that allows the check
}

func (c *respCaller) Close() { _ = c.conn.Close() }

func (c *respCaller) Call(context.Context) (counts load.Counts, err error) {
	if _, err := c.conn.Write(c.text); err != nil {
		return counts, err
	}
	for range c.checks {
		first, err := c.reply()
		if err != nil {
			return counts, err
		}
		if first == c.allowed {
			counts.Allowed++
		} else {
			counts.Denied++
		}
	}
	return counts, nil
}

// reply reads an array of integers and texts, and returns the first integer.
func (c *respCaller) reply() (first int64, err error) {
	n, err := c.line('*')
	for i := int64(0); i < n && err == nil; i++ {
		var value int64
		if value, err = c.line(':'); i == 0 {
			first = value
		}
	}
	return first, err
}

// line reads a line that begins with the byte kind, and returns the number in it. If the line is
// the start of a text, line also reads the text and ignores it.
func (c *respCaller) line(kind byte) (n int64, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 3 || line[0] != kind && line[0] != '$' {
		return 0, fmt.Errorf("the server replies %q", line)
	}
	for _, digit := range line[1 : len(line)-2] {
		n = 10*n + int64(digit-'0') // ignores a minus sign, because the first value is never negative
	}
	if line[0] == '$' {
		_, err = c.in.Discard(int(n) + 2)
	}
	return n, err
}

// writeWays writes the tables of the group ways.
func (r *results) writeWays(b *strings.Builder) {
	fmt.Fprintf(b, "\nA request through a gateway:\n\n")
	head(b, "without Headgate, p50 / p99 ms", "added ms", "p50, ×", "without Headgate, µs", "added µs", "Headgate µs", "processor time, ×")
	r.writeThrough(b, middlewareWay, noop)
	for _, w := range gatewayWays {
		r.writeThrough(b, w.name, w.without())
	}
	fmt.Fprintf(b, "\nA call:\n\n")
	head(b, latencies, "p50, × no-op", "Headgate µs for each check", "× no-op")
	writeCall(b, r, "no-op", noop, noop)
	for _, w := range callWays {
		writeCall(b, r, w.title(), called(w.title()), noop)
	}
}

// writeThrough writes the table row of a gateway. base is the name of the contender without
// Headgate.
func (r *results) writeThrough(b *strings.Builder, name, base string) {
	at := func(v value, combine func(value, series, series) float64) float64 {
		return pair(r.waysAtRate, v, name, base, combine)
	}
	full := func(v value, combine func(value, series, series) float64) float64 {
		return pair(r.waysFull, v, name, base, combine)
	}
	processors := math.NaN()
	if len(r.waysFull[name]) > 0 && len(r.waysFull[base]) > 0 {
		processors = inRounds(func(s ...slot) float64 { return withBehind(s[0]) / s[1].server }, r.waysFull[name], r.waysFull[base])
	}
	row(b, name, r.waysAtRate[base].latencies(), number(at(p50, difference))+" / "+number(at(p99, difference)), number(at(p50, ratio)),
		number(r.waysFull[base].median(server)), number(full(server, difference)), number(r.waysFull[name].median(behind)), number(processors))
}

// writeCall writes the table row of a callWay. name and base are the names of two contenders.
func writeCall(b *strings.Builder, r *results, title, name, base string) {
	row(b, title, r.waysAtRate[name].latencies(), number(pair(r.waysAtRate, p50, name, base, ratio)),
		number(r.waysFull[name].median(server)), number(pair(r.waysFull, server, name, base, ratio)))
}
