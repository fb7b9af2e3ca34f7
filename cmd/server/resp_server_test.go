//go:build !quick

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var respAddr = regexp.MustCompile(`serving the Redis protocol".*"addr":"([^"]+)"`)

// respPolicies has a policy of REST routes, and the policy of the documented examples of redis-cell: a bucket of 16 that
// gets 30 units a minute.
const respPolicies = `[
	{"slug": "login", "match": {"path": "/v1/login", "methods": ["POST"]}, "count_by": ["ip"], "limits": [{"algorithm": "fixed_window", "quota": 5, "window": "1h"}]},
	{"slug": "tokens", "match": {"path": "/v1/tokens"}, "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "quota": 100, "window": "1h", "warn_at": [80, 95]}]},
	{"slug": "jobs", "match": {"path": "/v1/jobs"}, "count_by": ["user"], "limits": [{"algorithm": "concurrency", "quota": 1, "window": "1h"}]},
	{"slug": "cell", "match": {"path": "/throttle/*"}, "count_by": ["key"], "limits": [{"algorithm": "token_bucket", "quota": 30, "window": "1m", "burst": 16}]},
	{"slug": "other", "match": {"path": "/v1/other"}, "count_by": ["user"], "limits": [{"algorithm": "token_bucket", "quota": 1000000000, "window": "1s"}]}
]`

// respNode starts a node that serves the Redis protocol. It returns its address, an operator key, and a key of the
// tenant acme that may only send checks.
func respNode(t testing.TB, settings map[string]string) (node *running, addr, operator, key string) {
	t.Helper()
	all := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_RESP_ADDR": "127.0.0.1:0"}
	for name, value := range settings {
		all[name] = value
	}
	return respPlan(t, start(t, all))
}

// respPlan publishes respPolicies on a node.
func respPlan(t testing.TB, node *running) (_ *running, addr, operator, key string) {
	t.Helper()
	addr = node.await(node.logs, respAddr)[1]
	made := call(t, bootstrap, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+respPolicies+`}}`)
	if made.status == 401 { // the sample has an operator key
		operator = node.await(node.out, operatorKeyLine)[1]
		made = call(t, operator, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+respPolicies+`}}`)
	} else {
		operator = bootstrap
	}
	made.want(t, 201)
	call(t, operator, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	call(t, operator, "POST", node.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"name": "Acme", "plan": "pro"}}`).want(t, 201)
	call(t, operator, "POST", node.origin+"/v1/tenants", `{"slug": "globex", "tenant": {"name": "Globex", "plan": "pro"}}`).want(t, 201)
	var created struct{ Token string }
	call(t, operator, "POST", node.origin+"/v1/tenants/acme/keys", `{"name": "resp", "scopes": ["check"]}`).want(t, 201).into(t, &created)
	return node, addr, operator, created.Token
}

func respClient(t testing.TB, addr, key string, protocol int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Password: key, Protocol: protocol, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A client of Redis sends checks, in both versions of the protocol. They are charged to the same counters as those of
// POST /v1/check.
func TestRESPChecks(t *testing.T) {
	t.Parallel()
	node, addr, _, key := respNode(t, nil)
	for protocol := 2; protocol <= 3; protocol++ {
		c, ip := respClient(t, addr, key, protocol), fmt.Sprintf("203.0.113.%d", protocol)
		if pong, err := c.Ping(t.Context()).Result(); err != nil || pong != "PONG" {
			t.Fatalf("PING: %q, %v", pong, err)
		}
		check := func() []any {
			t.Helper()
			got, err := c.Do(t.Context(), "HEADGATE.CHECK", "-", "/v1/login", "ip", ip, "METHOD", "POST").Slice()
			if err != nil || len(got) != 11 {
				t.Fatalf("check: %v, %v", got, err)
			}
			return got
		}
		for i := range int64(3) {
			if got := check(); got[0] != int64(1) || got[1] != int64(5) || got[2] != 4-i || got[3] != int64(0) || got[5] != "ok" || got[6] != "login" {
				t.Fatalf("check %d: %v", i, got)
			}
		}
		for range 2 {
			call(t, key, "POST", node.origin+"/v1/check", `{"method": "POST", "path": "/v1/login", "attributes": {"ip": "`+ip+`"}}`).want(t, 200)
		}
		denied := check()
		wait, ok := denied[3].(int64)
		if denied[0] != int64(0) || denied[2] != int64(0) || !ok || wait < 1 || wait > 3_600_000 || denied[5] != "over_limit" || denied[8] != int64(0) {
			t.Fatalf("the sixth check: %v", denied)
		}
		if id, _ := denied[7].(string); len(id) != 36 {
			t.Fatalf("the id of the decision is %q", id)
		}
		// A read shows the state and charges nothing; a cost above what is left is denied.
		for range 2 {
			got, err := c.Do(t.Context(), "HEADGATE.CHECK", "acme", "/v1/tokens", "user", ip, "METHOD", "POST", "COST", "60", "MODE", "peek").Slice()
			if err != nil || got[0] != int64(1) || got[2] != int64(40) {
				t.Fatalf("peek: %v, %v", got, err)
			}
		}
	}
}

// The replies of CL.THROTTLE to the examples in the README of redis-cell.
func TestRESPThrottle(t *testing.T) {
	t.Parallel()
	_, addr, _, key := respNode(t, nil)
	c := respClient(t, addr, key, 2)
	throttle := func(args ...any) []any {
		t.Helper()
		got, err := c.Do(t.Context(), append([]any{"CL.THROTTLE"}, args...)...).Slice()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := throttle("user123", 15, 30, 60, 1); !slices.Equal(got, []any{int64(0), int64(16), int64(15), int64(-1), int64(2)}) {
		t.Errorf("the first call: %v", got)
	}
	if got := throttle("user456", 15, 30, 60); !slices.Equal(got, []any{int64(0), int64(16), int64(15), int64(-1), int64(2)}) {
		t.Errorf("without a quantity: %v", got)
	}
	if got := throttle("user789", 15, 30, 60, 16); !slices.Equal(got, []any{int64(0), int64(16), int64(0), int64(-1), int64(32)}) {
		t.Errorf("all at once: %v", got)
	}
	// The bucket fills by one unit in two seconds, so a busy machine may allow some of these.
	denied := false
	for range 32 {
		if got := throttle("user789", 15, 30, 60, 16); got[0] == int64(1) {
			if wait, ok := got[3].(int64); !ok || wait < 1 || wait > 32 || got[1] != int64(16) {
				t.Errorf("denied: %v", got)
			}
			denied = true
		}
	}
	if !denied {
		t.Error("no call is denied")
	}
	if got := throttle("user000", 15, 30, 60, 17); !slices.Equal(got, []any{int64(1), int64(16), int64(16), int64(-1), int64(0)}) {
		t.Errorf("more than the bucket holds: %v", got)
	}
}

// Each invalid command gets an error that names the mistake. An invalid command in a pipeline
// charges nothing and does not change other replies.
func TestRESPMistakes(t *testing.T) {
	t.Parallel()
	node, addr, operator, key := respNode(t, nil)
	fails := func(c *redis.Client, want string, args ...any) {
		t.Helper()
		if got, err := c.Do(t.Context(), args...).Result(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, %v, want %q", args, got, err, want)
		}
	}
	fails(respClient(t, addr, "", 2), "NOAUTH ", "HEADGATE.CHECK", "acme", "/v1/tokens")
	fails(respClient(t, addr, "hg_tn_wrong", 2), "WRONGPASS ", "HEADGATE.CHECK", "acme", "/v1/tokens")
	c := respClient(t, addr, key, 2)
	fails(c, "unknown command \"GET\"", "GET", "x")
	fails(c, "wrong number of arguments for 'echo'", "ECHO")
	fails(c, "use HEADGATE.CHECK tenant path", "HEADGATE.CHECK", "acme")
	fails(c, "use HEADGATE.CHECK tenant path", "HEADGATE.CHECK", "acme", "/", "user")
	fails(c, "method is required", "HEADGATE.CHECK", "acme", "/v1/tokens")
	fails(c, "METHOD must be an HTTP method", "HEADGATE.CHECK", "acme", "/v1/tokens", "METHOD", "post")
	fails(c, "COST must be a whole number from 0 to 2147483647", "HEADGATE.CHECK", "acme", "/v1/tokens", "METHOD", "POST", "COST", "-1")
	fails(c, "MODE must be enforce, peek, force or take_up_to", "HEADGATE.CHECK", "acme", "/v1/tokens", "METHOD", "POST", "MODE", "free")
	fails(c, `attribute "user" is given twice`, "HEADGATE.CHECK", "acme", "/v1/tokens", "user", "a", "user", "b")
	for _, option := range [][]any{{"COST", "1"}, {"METHOD", "POST"}, {"MODE", "peek"}, {"IDEMPOTENCY", "a1"}, {"LEASE", "j"}, {"TTL", "5"}, {"REFUNDABLE", "0"}} {
		twice := append([]any{"HEADGATE.CHECK", "acme", "/v1/tokens"}, append(option, option...)...)
		fails(c, fmt.Sprint(option[0], " is given twice"), twice...)
	}
	fails(c, "ID is not an option of this command", "HEADGATE.CHECK", "acme", "/v1/tokens", "METHOD", "POST", "ID", "r1")
	fails(c, "path ", "HEADGATE.CHECK", "acme", "v1/tokens", "METHOD", "POST")
	fails(c, "NOPERM ", "HEADGATE.CHECK", "globex", "/v1/tokens", "METHOD", "POST")
	fails(c, "NOPERM ", "HEADGATE.CHECK", "none", "/v1/tokens", "METHOD", "POST")
	fails(respClient(t, addr, operator, 2), "no such tenant", "HEADGATE.CHECK", "none", "/v1/tokens", "METHOD", "POST")
	fails(respClient(t, addr, operator, 2), "tenant is required", "HEADGATE.CHECK", "-", "/v1/tokens", "METHOD", "POST")
	fails(c, "use CL.THROTTLE key max_burst count period", "CL.THROTTLE", "user123")
	for _, prefix := range []string{"../v1/login", "a/../login", "a/b", "/login", "a?b", "a#b", "..", ".", "%2e%2e", "%2e", ""} {
		fails(c, "one segment of a path", "CL.THROTTLE", prefix+":x", 15, 30, 60)
	}
	for _, name := range []string{"MULTI", "exec", "DISCARD"} {
		fails(c, "pipeline(transaction=False)", name)
	}
	fails(c, "count must be a whole number from 1", "CL.THROTTLE", "user123", 15, 0, 60)

	pipe := c.Pipeline()
	good := []any{"HEADGATE.CHECK", "acme", "/v1/tokens", "user", "pipe", "METHOD", "POST"}
	first, wrong, ping, last := pipe.Do(t.Context(), good...), pipe.Do(t.Context(), "HEADGATE.CHECK", "acme", "/", "COST", "x"),
		pipe.Ping(t.Context()), pipe.Do(t.Context(), good...)
	_, _ = pipe.Exec(t.Context())
	remaining := func(c *redis.Cmd) any {
		list, err := c.Slice()
		if err != nil {
			t.Fatal(err)
		}
		return list[2]
	}
	if remaining(first) != int64(99) || wrong.Err() == nil || ping.Val() != "PONG" || remaining(last) != int64(98) {
		t.Errorf("a pipeline with a mistake: %v, %v, %v, %v", first, wrong, ping, last)
	}

	// A key that is revoked stops working on open connections.
	id := strings.Split(call(t, operator, "GET", node.origin+"/v1/tenants/acme/keys", "").want(t, 200).body, `"id":"`)[1][:36]
	call(t, operator, "DELETE", node.origin+"/v1/tenants/acme/keys/"+id, "").want(t, 200)
	eventually(t, "the revoked key is refused", func() bool {
		err := c.Do(t.Context(), good...).Err()
		return err != nil && strings.HasPrefix(err.Error(), "NOAUTH ")
	})
}

// Bytes that are not a command end their connection with an error. Other connections are not
// affected.
func TestRESPProtocolErrors(t *testing.T) {
	t.Parallel()
	_, addr, _, key := respNode(t, nil)
	for _, sent := range []string{"*2000000000\r\n", "*1\r\n$536870912\r\n", "*1\r\n:1\r\n", strings.Repeat("x", 5000)} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "PING\r\n"+sent); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		got, err := io.ReadAll(conn)
		if text := string(got); !strings.HasPrefix(text, "+PONG\r\n-ERR protocol error: ") && !errors.Is(err, net.ErrClosed) {
			t.Errorf("%.20q: %q, %v", sent, text, err)
		}
		_ = conn.Close()
	}
	if err := respClient(t, addr, key, 3).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// Many connections with long pipelines are allowed exactly the quota. When the node stops, it
// still answers the commands that have arrived.
func TestRESPIsExact(t *testing.T) {
	t.Parallel()
	node, addr, _, key := respNode(t, nil)
	const clients, each = 20, 64
	var wait sync.WaitGroup
	passed := make([]int, clients)
	for i := range clients {
		c := respClient(t, addr, key, 2)
		wait.Go(func() {
			pipe := c.Pipeline()
			var replies []*redis.Cmd
			for range each {
				replies = append(replies, pipe.Do(t.Context(), "HEADGATE.CHECK", "acme", "/v1/tokens", "user", "all", "METHOD", "POST"))
			}
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Error(err)
			}
			for _, r := range replies {
				if list, err := r.Slice(); err == nil && list[0] == int64(1) {
					passed[i]++
				}
			}
		})
	}
	wait.Wait()
	sum := 0
	for _, n := range passed {
		sum += n
	}
	if sum != 100 {
		t.Errorf("%d of 100 passed", sum)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || line != "+PONG\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := node.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection after the stop: %v", err)
	}
}
