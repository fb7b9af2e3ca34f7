//go:build !quick

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/testseed"
)

// wirePolicies are policies of every algorithm, with several limits on some requests, of every failure mode, and for
// every reason of a denial. Their windows are so long that the test does not see them end.
const wirePolicies = `[
	{"slug": "all", "match": {"path": "/v1/*"}, "count_by": ["ip"], "limits": [{"algorithm": "fixed_window", "quota": 60, "window": "30d", "warn_at": [50]}]},
	{"slug": "login", "match": {"path": "/v1/login", "methods": ["POST"]}, "count_by": ["ip"], "limits": [{"algorithm": "sliding_window_log", "quota": 9, "window": "33d"}]},
	{"slug": "items", "match": {"path": "/v1/items/*"}, "count_by": ["user"], "cost": 2, "limits": [
		{"name": "bucket", "algorithm": "token_bucket", "quota": 12, "window": "300d", "burst": 14}, {"name": "year", "algorithm": "fixed_window", "quota": 100, "window": "year"}]},
	{"slug": "tokens", "match": {"path": "/v1/other"}, "count_by": ["ip"], "cost_from": "tokens", "on_failure": "open", "limits": [{"algorithm": "fixed_window", "quota": 20, "window": "36d"}]},
	{"slug": "write", "match": {"path": "/v1/items/*", "methods": ["PUT"]}, "count_by": ["user"], "on_failure": "closed", "limits": [{"algorithm": "gcra", "quota": 7, "window": "300d"}]},
	{"slug": "queued", "match": {"path": "/v1/items/*", "methods": ["POST"]}, "count_by": ["user"], "limits": [{"algorithm": "leaky_bucket", "quota": 7, "window": "300d", "burst": 9}]},
	{"slug": "reduced", "mode": "degrade", "match": {"path": "/v1/items/*"}, "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "quota": 5, "window": "30d", "warn_at": [60]}]},
	{"slug": "slowed", "mode": "delay", "delay_ms": 2500, "match": {"path": "/v1/other"}, "count_by": ["ip"], "limits": [{"algorithm": "token_bucket", "quota": 9, "window": "300d"}]},
	{"slug": "profile", "match": {"path": "/v1/profile"}, "count_by": ["user"], "missing": "deny", "limits": [{"algorithm": "sliding_window_counter", "quota": 3, "window": "39d"}]},
	{"slug": "throttle", "match": {"path": "/throttle/login"}, "count_by": ["key"], "limits": [{"algorithm": "token_bucket", "quota": 6, "window": "300d", "burst": 4}]},
	{"slug": "named", "match": {"path": "/throttle/*"}, "limits": [{"algorithm": "fixed_window", "quota": 90, "window": "42d"}]},
	{"slug": "jobs", "match": {"path": "/v1/jobs"}, "count_by": ["user"], "limits": [{"algorithm": "concurrency", "quota": 3, "window": "300d"}]},
	{"slug": "shadow", "mode": "shadow", "limits": [{"algorithm": "fixed_window", "quota": 3, "window": "30d"}]}
]`

// wireExceptions are the paths and bodies of what is set for each tenant.
var wireExceptions = [][2]string{
	{"lists", `{"list": "deny", "attribute": "user", "value": "denied"}`},
	{"lists", `{"list": "allow", "attribute": "ip", "value": "198.51.100.0/24"}`},
	{"blocks", `{"reason": "test", "policy": "items", "key": {"user": "blocked"}}`},
	{"blocks", `{"reason": "test", "policy": "throttle", "key": {"key": "login:blocked"}}`},
	{"overrides", `{"reason": "test", "policy": "login", "attribute": "ip", "prefix": "2001:db8::/32", "limits": [{"name": "l1", "quota": 2}]}`},
	{"overrides", `{"reason": "test", "policy": "all", "attribute": "ip", "value": "192.0.2.2", "factor": 0.5}`},
	{"overrides", `{"reason": "test", "policy": "throttle", "factor": 2, "attribute": "key", "value": "login:u2"}`},
}

// A wireCheck is one check of the script.
type wireCheck struct {
	method, path, ip, user, tokens, key string // ip, user, tokens and key are "" if the check has none
	cost                                int    // -1: none is sent
	mode                                string // "": none is sent
	once                                string // the idempotency key; "": none is sent
	lease                               string // its time to live is leaseTTL; "": none is sent
	refundable                          bool
}

// leaseTTL is so long that no lease ends during the test.
const leaseTTL = 40 * 24 * time.Hour

// attributes returns the names and values of all attributes but ip.
func (c wireCheck) attributes() (pairs []string) {
	for _, a := range [][2]string{{"user", c.user}, {"tokens", c.tokens}, {"key", c.key}} {
		if a[1] != "" {
			pairs = append(pairs, a[0], a[1])
		}
	}
	return pairs
}

// json returns the body of POST /v1/check.
func (c wireCheck) json() string {
	body := map[string]any{"method": c.method, "path": c.path}
	attributes := map[string]string{}
	if c.ip != "" {
		attributes["ip"] = c.ip
	}
	for pair := range slices.Chunk(c.attributes(), 2) {
		attributes[pair[0]] = pair[1]
	}
	body["attributes"] = attributes
	if c.cost >= 0 {
		body["cost"] = c.cost
	}
	if c.mode != "" {
		body["mode"] = c.mode
	}
	if c.lease != "" {
		body["lease"] = map[string]any{"id": c.lease, "ttl_ms": leaseTTL.Milliseconds()}
	}
	if c.refundable {
		body["refundable"] = true
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// fixedChecks begin the script, so that each reason has a decision with every seed.
var fixedChecks = []wireCheck{
	{method: "POST", path: "/v1/login", ip: "192.0.2.1", cost: 50},  // no wait makes it fit
	{method: "GET", path: "/v1/profile", ip: "192.0.2.1", cost: -1}, // has no user
	{method: "GET", path: "/v1/items/1", ip: "192.0.2.1", user: "blocked", cost: 1},
	{method: "GET", path: "/v1/items/1", ip: "192.0.2.1", user: "denied", cost: 1},
	{method: "GET", path: "/v1/items/1", ip: "198.51.100.7", user: "u1", cost: 1}, // on the allow list
	{method: "GET", path: "/unmatched", ip: "192.0.2.1", cost: 1},
	{method: "PUT", path: "/v1/items/1", ip: "192.0.2.1", user: "u1", cost: -1}, // denied while Redis is away
	{method: "POST", path: "/v1/items/1", ip: "192.0.2.9", user: "u4", cost: 1},
	{method: "POST", path: "/v1/items/1", ip: "192.0.2.9", user: "u4", cost: 1},  // waits for the one before
	{method: "GET", path: "/v1/items/1", ip: "203.0.113.7", user: "u2", cost: 6}, // is served cheap
	{method: "GET", path: "/v1/other", ip: "203.0.113.7", cost: 10},              // is delayed by a policy
	{method: "GET", path: "/v1/items/3", ip: "203.0.113.8", user: "u5", cost: 2, once: "first"},
	{method: "GET", path: "/v1/items/3", ip: "203.0.113.8", user: "u5", cost: 2, once: "first"}, // is a repetition
	{method: "POST", path: "/v1/login", ip: "203.0.113.8", cost: 50, mode: "take_up_to"},        // gets what is left
	{method: "POST", path: "/v1/jobs", user: "u6", cost: -1, lease: "job-1"},
	{method: "POST", path: "/v1/jobs", user: "u6", cost: -1, lease: "job-1"}, // renews the lease
	{method: "POST", path: "/v1/jobs", user: "u6", cost: 2, lease: "job-2"},
	{method: "POST", path: "/v1/jobs", user: "u6", cost: -1, lease: "job-3"}, // finds no place
	{method: "POST", path: "/v1/jobs", user: "u7", cost: -1, once: "job"},
	{method: "POST", path: "/v1/jobs", user: "u7", cost: -1, once: "job"}, // has the lease of the one before
	{method: "POST", path: "/v1/other", ip: "203.0.113.9", cost: 1, refundable: true},
}

// wireScript returns 200 checks. Those of redis-cell have its method and path, so that CL.THROTTLE can send them.
func wireScript(t *testing.T) []wireCheck {
	random := rand.New(rand.NewPCG(testseed.Seed(t), 0))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	script := make([]wireCheck, 200)
	for i := range script {
		c := wireCheck{
			method: one("GET", "POST", "PUT"), path: one("/v1/login", "/v1/items/1", "/v1/items/2", "/v1/other", "/v1/profile", "/v1/jobs", "/unmatched"),
			ip:   one("192.0.2.1", "192.0.2.2", "2001:db8::1", "203.0.113.7", "198.51.100.7"),
			user: one("u1", "u2", "u3", "denied", "blocked", ""), tokens: one("0", "5", "9", ""), cost: random.IntN(5) - 1,
			mode: one("", "", "", "", "enforce", "peek", "force", "take_up_to"), lease: one("", "", "", "job-4", "a lease with a long name"),
		}
		if c.mode == "take_up_to" && c.cost == 0 {
			c.cost = 3
		}
		if random.IntN(4) == 0 {
			c.once = fmt.Sprintf("key-%d", i)
		}
		c.refundable = random.IntN(6) == 0 && c.mode != "peek" && c.mode != "take_up_to"
		if random.IntN(6) == 0 {
			c.method, c.path, c.tokens = "CL.THROTTLE", "/throttle/login", ""
			c.key = "login:" + cmp.Or(c.user, "u9")
		}
		if i > 0 && random.IntN(5) == 0 {
			c = script[random.IntN(i)]
		}
		script[i] = c
	}
	copy(script, fixedChecks)
	return script
}

// A wireLimit is one limit of a decision. Times are in milliseconds; -1 is never.
type wireLimit struct {
	Policy, Limit, Mode                         string
	Quota, Burst, Cost, Remaining, Reset, Retry int64
	Allowed                                     bool
	NearLimit                                   int64
}

// A wireAnswer is a decision in the form of one protocol. Times are in milliseconds.
type wireAnswer struct {
	Allowed  bool
	Reason   string      // "": not said
	Limits   []wireLimit // all, or the tightest; nil: not said, or no limit decided
	Retry    int64       // -1: never; unsaid: not said
	Delay    int64       // unsaid: not said
	Near     int64       // the threshold that is reached; 0: none, or not said
	Serve    string      // "": the full answer, or not said
	Degraded string      // "": not said
	Headers  map[string]string
	ID       string // "": not said

	Taken      int64  // in mode take_up_to
	Replayed   bool   // an earlier check with the idempotency key decided
	Lease      string // only compared for a check that names a lease
	Refundable bool   // the answer says until when
}

// unsaid is wireAnswer.Retry or Delay of a wire without such a number.
const unsaid = -2

// answerOf reads the answer from the body of POST /v1/check.
func answerOf(t *testing.T, body string) wireAnswer {
	t.Helper()
	var d struct {
		Allowed    *bool
		Reason     string
		DecisionID string `json:"decision_id"`
		Degraded   *bool
		Retry      *int64 `json:"retry_after_ms"`
		Delay      int64  `json:"delay_ms"`
		Near       int64  `json:"near_limit"`
		Serve      string
		Taken      int64
		Replayed   bool
		Lease      struct {
			ID  string
			TTL int64 `json:"ttl_ms"`
		}
		RefundableUntil string `json:"refundable_until"`
		Limits          []struct {
			Policy, Limit, Mode           string
			Quota, Burst, Cost, Remaining int64
			Reset                         int64  `json:"reset_after_ms"`
			Retry                         *int64 `json:"retry_after_ms"`
			NearLimit                     int64  `json:"near_limit"`
			Allowed                       bool
		}
	}
	if err := json.Unmarshal([]byte(body), &d); err != nil || d.Allowed == nil || d.Degraded == nil {
		t.Fatalf("%v: %s", err, body)
	}
	orNever := func(ms *int64) int64 {
		if ms == nil {
			return -1
		}
		return *ms
	}
	a := wireAnswer{Allowed: *d.Allowed, Reason: d.Reason, Retry: orNever(d.Retry), Delay: d.Delay, Serve: d.Serve, Degraded: strconv.FormatBool(*d.Degraded), ID: d.DecisionID}
	a.Near, a.Taken, a.Replayed, a.Lease, a.Refundable = d.Near, d.Taken, d.Replayed, d.Lease.ID, d.RefundableUntil != ""
	if a.Lease != "" && a.Lease != a.ID && d.Lease.TTL != leaseTTL.Milliseconds() {
		t.Errorf("the lease %s lives for %d ms", a.Lease, d.Lease.TTL)
	}
	for _, l := range d.Limits {
		a.Limits = append(a.Limits, wireLimit{
			l.Policy, l.Limit, l.Mode, l.Quota, cmp.Or(l.Burst, l.Quota), l.Cost, l.Remaining, l.Reset, orNever(l.Retry), l.Allowed, l.NearLimit,
		})
	}
	return a
}

// headerName returns the name of the limit in headers. If the policy has several limits, it
// contains the name of the limit.
func (l wireLimit) headerName() string {
	if l.Policy == "items" {
		return l.Policy + "." + l.Limit
	}
	return l.Policy
}

// tightest returns the limit that denies for the longest time, or else has the fewest units left.
func (a wireAnswer) tightest() []wireLimit {
	var found []wireLimit
	wait := func(l wireLimit) int64 {
		if l.Retry == -1 {
			return 1 << 62
		}
		return l.Retry
	}
	for _, l := range a.Limits {
		switch {
		case l.Mode != "enforce":
		case len(found) == 0:
			found = []wireLimit{l}
		case !l.Allowed && (found[0].Allowed || wait(l) > wait(found[0])), l.Allowed && found[0].Allowed && l.Remaining < found[0].Remaining:
			found[0] = l
		}
	}
	return found
}

// headers are the headers of a decision that the test compares.
var wireHeaders = []string{
	"Ratelimit-Policy", "Ratelimit", "Retry-After", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Near-Limit", "X-Ratelimit-Delay-Ms", "X-Ratelimit-Serve",
}

// seconds are the parts of a header's value that are times.
var (
	secondsInList = regexp.MustCompile(`;t=\d+`)
	secondsAlone  = regexp.MustCompile(`^\d+$`)
)

// A wireComparison compares the responses of one protocol with those of POST /v1/check.
type wireComparison struct {
	row   wireRow
	slack time.Duration // two answers may be that far apart, because one is later
}

// faults returns the differences in the parts that the protocol can express.
func (c wireComparison) faults(check *wireCheck, got, want wireAnswer) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if got.Allowed != want.Allowed {
		fault("allowed is %t", got.Allowed)
	}
	said := func(what, cell, got, want string) {
		if cell == "no" {
			want = ""
		}
		if got != want {
			fault("%s is %q, want %q", what, got, want)
		}
	}
	said("reason", c.row.reason, got.Reason, want.Reason)
	said("degraded", c.row.degraded, got.Degraded, want.Degraded)
	said("serve", c.row.serve, got.Serve, want.Serve)
	if check.lease != "" {
		said("lease", c.row.lease, got.Lease, want.Lease)
	}
	if got.Taken != want.Taken || got.Replayed != want.Replayed || got.Refundable != want.Refundable {
		fault("taken %d, replayed %t, refundable %t, want %d, %t, %t",
			got.Taken, got.Replayed, got.Refundable, want.Taken, want.Replayed, want.Refundable)
	}
	if hasID := len(got.ID) == 36; hasID != (c.row.id == "yes") {
		fault("the decision id is %q", got.ID)
	}
	if c.row.retry == "no" {
		want.Retry = unsaid
	}
	c.near(fault, "retry_after", c.row.retry, got.Retry, want.Retry)
	if c.row.delay == "no" {
		want.Delay = unsaid
	}
	c.near(fault, "delay", c.row.delay, got.Delay, want.Delay)
	if c.row.nearLimit == "no" {
		want.Near = 0
	}
	if got.Near != want.Near {
		fault("near_limit is %d, want %d", got.Near, want.Near)
	}
	c.limits(fault, got.Limits, want)
	c.headers(fault, got.Headers, want.Headers)
	return faults
}

// near compares two times in milliseconds. unit is that of the way.
func (c wireComparison) near(fault func(string, ...any), what, unit string, got, want int64) {
	slack := c.slack.Milliseconds()
	if unit == "s" {
		slack += 1000
	}
	if exact := got <= 0 || want <= 0; exact && got != want || got < want-slack || got > want+slack {
		fault("%s is %d ms, want %d within %d", what, got, want, slack)
	}
}

func (c wireComparison) limits(fault func(string, ...any), got []wireLimit, want wireAnswer) {
	all := want.Limits
	switch c.row.limits {
	case "all":
	case "tightest", "numbers of the tightest":
		all = slices.Clone(want.tightest())
		for i := range all {
			l := all[i]
			all[i] = wireLimit{Policy: l.headerName(), Quota: l.Quota, Remaining: l.Remaining, Reset: l.Reset}
			if c.row.limits != "tightest" {
				all[i].Policy, all[i].Quota = "", l.Burst
			}
		}
	case "no":
		all = nil
	default:
		fault("docs/gateways.md says %q of limits", c.row.limits)
	}
	if len(got) != len(all) {
		fault("%d limits, want %d", len(got), len(all))
		return
	}
	for i := range all {
		c.near(fault, all[i].Policy+": reset", c.row.reset, got[i].Reset, all[i].Reset)
		c.near(fault, all[i].Policy+": retry", "ms", got[i].Retry, all[i].Retry)
		same := got[i]
		same.Reset, same.Retry = all[i].Reset, all[i].Retry
		if diff := gocmp.Diff(all[i], same); diff != "" {
			fault("limit %d: %s", i, diff)
		}
	}
}

func (c wireComparison) headers(fault func(string, ...any), got, want map[string]string) {
	if c.row.headers == "no" {
		want = nil
	}
	for _, name := range wireHeaders {
		times := secondsInList
		unit, scale := "s", int64(1000)
		switch {
		case strings.HasSuffix(name, "-Ms"):
			times, unit, scale = secondsAlone, "ms", 1
		case strings.HasSuffix(name, "-Reset"), name == "Retry-After":
			times = secondsAlone
		}
		a, b := times.FindAllString(got[name], -1), times.FindAllString(want[name], -1)
		if times.ReplaceAllString(got[name], "T") != times.ReplaceAllString(want[name], "T") || len(a) != len(b) {
			fault("%s is %q, want %q", name, got[name], want[name])
			continue
		}
		for i := range a {
			x, _ := strconv.ParseInt(strings.TrimPrefix(a[i], ";t="), 10, 64)
			y, _ := strconv.ParseInt(strings.TrimPrefix(b[i], ";t="), 10, 64)
			c.near(fault, name, unit, scale*x, scale*y)
		}
	}
}

// wireNode is the node of a test, with its ports.
type wireNode struct {
	*running
	envoy *grpc.ClientConn
	resp  string
}

func startWireNode(t *testing.T, settings map[string]string) wireNode {
	all := map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false",
		"HEADGATE_TRUSTED_PROXIES": "127.0.0.1/32", "HEADGATE_RESP_ADDR": "127.0.0.1:0", "HEADGATE_ENVOY_ADDR": "127.0.0.1:0",
		"HEADGATE_HEADERS": "draft-11,draft-06,x-ratelimit,near-limit",
	}
	maps.Copy(all, settings)
	node := start(t, all)
	made := call(t, bootstrap, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+wirePolicies+`}}`).want(t, 201)
	call(t, bootstrap, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	return wireNode{node, dialEnvoy(t, node.await(node.logs, envoyAddr)[1], insecure.NewCredentials()), node.await(node.logs, respAddr)[1]}
}

// play plays the script for a new tenant, which is suspended before the last checks.
func (n wireNode) play(t *testing.T, slug string, way wirePlayer, script []wireCheck) (answers []wireAnswer) {
	t.Helper()
	tenant := `{"name": "Customer", "plan": "pro", "no_policy": "deny", "status": %q}`
	made := call(t, bootstrap, "POST", n.origin+"/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": `+tenant+`}`, slug, "active")).want(t, 201)
	var created struct{ Token string }
	call(t, bootstrap, "POST", n.origin+"/v1/tenants/"+slug+"/keys", `{"name": "gateway", "scopes": ["check"]}`).want(t, 201).into(t, &created)
	for _, e := range wireExceptions {
		call(t, bootstrap, "POST", n.origin+"/v1/tenants/"+slug+"/"+e[0], e[1]).want(t, 201)
	}
	const suspendedFrom = 185
	answers = way(t, n, created.Token, script[:suspendedFrom])
	call(t, bootstrap, "PUT", n.origin+"/v1/tenants/"+slug, fmt.Sprintf(tenant, "suspended"), "If-Match", made.header.Get("ETag")).want(t, 200)
	eventually(t, "the tenant is suspended", func() bool {
		a := call(t, created.Token, "POST", n.origin+"/v1/check", `{"method": "GET", "path": "/", "mode": "peek"}`)
		return strings.Contains(a.body, `"tenant_suspended"`)
	})
	return append(answers, way(t, n, created.Token, script[suspendedFrom:])...)
}

// A script of 200 checks gets the same decisions over every protocol, as far as the tables of
// docs/gateways.md say that the protocol can express them. The metrics count each check under
// its protocol. The test runs with the limiter in process, with Redis, and with Redis
// unavailable.
func TestSameDecisionsOnEveryWire(t *testing.T) {
	t.Parallel()
	onEveryLimiter(t, func(t *testing.T, extra map[string]string, ready func(), away bool) {
		t.Helper()
		node := startWireNode(t, extra)
		ready()
		playEveryWire(t, node, away)
	})
}

// onEveryLimiter runs a test with the limiter of the process, with Redis, and with a Redis that is killed. extra are the
// settings of the node. The test calls ready after the start of the node; it kills Redis if away is set.
func onEveryLimiter(t *testing.T, play func(t *testing.T, extra map[string]string, ready func(), away bool)) {
	t.Helper()
	t.Run("inprocess", func(t *testing.T) {
		t.Parallel()
		play(t, nil, func() {}, false)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		play(t, map[string]string{
			"HEADGATE_REDIS_URL": servertest.Redis(t), "HEADGATE_REDIS_PREFIX": fmt.Sprintf("hg-%x:", rand.Uint64()), "HEADGATE_LIMITER_TIMEOUT": "30s",
		}, func() {}, false)
	})
	t.Run("redis is away", func(t *testing.T) {
		t.Parallel()
		server := servertest.StartRedis(t)
		play(t, map[string]string{"HEADGATE_REDIS_URL": server.URL()}, server.Kill, true)
	})
}

func playEveryWire(t *testing.T, node wireNode, degraded bool) {
	rows, script, begun := wireRows(t), wireScript(t), time.Now()
	references := map[string][]wireAnswer{}
	counted := map[string]int{} // decisions by outcome and wire
	count := func(wire enforcement.Wire, script []wireCheck, answers []wireAnswer) {
		for i, a := range answers {
			outcome := "refused"
			if a.Allowed {
				outcome = "allowed"
			}
			if script[i].mode != "peek" && !a.Replayed {
				counted[fmt.Sprintf("outcome=%q,wire=%q", outcome, wire)]++
			}
		}
	}
	played := map[enforcement.Wire]bool{}
	for i, way := range wireWays {
		row, known := rows[way.row]
		if !known {
			t.Fatalf("docs/gateways.md has no row %s", way.row)
		}
		projected := row.sayable(t, script)
		want := references[fmt.Sprint(projected)]
		if want == nil {
			want = node.play(t, fmt.Sprintf("reference%d", i), checkWay, projected)
			references[fmt.Sprint(projected)] = want
			count(enforcement.WireCheck, projected, want)
			variedEnough(t, want, row, degraded)
		}
		got := node.play(t, fmt.Sprintf("way%d", i), way.play, projected)
		count(way.wire, projected, got)
		played[way.wire] = true
		if len(got) != len(want) {
			t.Fatalf("%s: %d answers, want %d", way.name, len(got), len(want))
		}
		comparison := wireComparison{row, time.Since(begun)}
		for k := range got {
			if faults := comparison.faults(&projected[k], got[k], want[k]); len(faults) > 0 {
				t.Errorf("%s, check %d %+v:\n%s\nwant as POST /v1/check: %+v", way.name, k, projected[k], strings.Join(faults, "\n"), want[k])
				break // the counters differ from here on
			}
		}
	}
	if len(played) != int(enforcement.NumWires) {
		t.Errorf("the test plays %d wires of %d", len(played), enforcement.NumWires)
	}
	for row := range rows {
		if !slices.ContainsFunc(wireWays, func(w wireWay) bool { return w.row == row }) {
			t.Errorf("the test does not play %s of docs/gateways.md", row)
		}
	}
	metrics := call(t, bootstrap, "GET", node.origin+"/metrics", "").want(t, 200).body
	for labels, n := range counted {
		if line := fmt.Sprintf("headgate_wire_decisions_total{%s} %d\n", labels, n); !strings.Contains(metrics, line) {
			t.Errorf("the metrics have no line %s", line)
		}
	}
}

// variedEnough fails the test if the script has too few kinds of decisions.
func variedEnough(t *testing.T, answers []wireAnswer, row wireRow, degraded bool) {
	t.Helper()
	reasons := map[string]int{}
	for _, a := range answers {
		reasons[a.Reason]++
		if degraded && a.Reason == "over_limit" && a.Degraded != "true" {
			t.Fatalf("decided by the limiter that is away: %+v", a)
		}
	}
	want := []string{"ok", "over_limit", "tenant_suspended"}
	if row.attributes == "all" {
		if !slices.ContainsFunc(answers, func(a wireAnswer) bool { return a.Delay > 0 }) {
			t.Fatal("no decision has a delay")
		}
		if near := slices.ContainsFunc(answers, func(a wireAnswer) bool { return a.Near > 0 }); near == degraded {
			t.Fatalf("a decision is near a limit: %t; a failure mode does not know it", near)
		}
		for what, has := range map[string]func(a wireAnswer) bool{
			"idempotency key": func(a wireAnswer) bool { return a.Replayed },
			"lease":           func(a wireAnswer) bool { return a.Lease == "job-1" },
			"refund":          func(a wireAnswer) bool { return a.Refundable },
			"take_up_to":      func(a wireAnswer) bool { return a.Taken > 0 },
		} {
			if degraded && what == "refund" {
				continue // a failure mode records nothing that could be refunded
			}
			sayable := map[string]string{"idempotency key": row.once, "lease": row.lease, "refund": row.refundable, "take_up_to": row.mode}
			if sayable[what] == "yes" != slices.ContainsFunc(answers, has) {
				t.Fatalf("a decision with %s: docs/gateways.md says %q", what, sayable[what])
			}
		}
		if !slices.ContainsFunc(answers, func(a wireAnswer) bool { return a.Delay == 2500 }) ||
			!slices.ContainsFunc(answers, func(a wireAnswer) bool { return a.Serve == "cheap" }) {
			t.Fatal("no decision is of a soft limit")
		}
		want = append(want, "cost_exceeds_quota", "blocked", "denied_by_list", "allowed_by_list", "no_policy", "missing_attribute")
		if degraded {
			want = append(want, "limiter_unavailable")
		}
	}
	for _, reason := range want {
		if reasons[reason] == 0 {
			t.Fatalf("no decision has the reason %s: %v", reason, reasons)
		}
	}
}
