//go:build !quick

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A respCaller sends commands over RESP and compares the replies.
type respCaller struct {
	*testing.T
	client *redis.Client
}

// does returns the reply to a command.
func (c respCaller) does(command string) []any {
	c.Helper()
	got, err := c.sends(command).Slice()
	if err != nil {
		c.Fatalf("%s: %v", command, err)
	}
	return got
}

func (c respCaller) sends(command string) *redis.Cmd {
	var args []any
	for _, word := range strings.Fields(command) {
		args = append(args, word)
	}
	return c.client.Do(c.Context(), args...)
}

// fails checks that a command has an error that begins with code and contains text.
func (c respCaller) fails(command, code, text string) {
	c.Helper()
	got, err := c.sends(command).Result()
	if err == nil || !strings.HasPrefix(err.Error(), code+" ") || !strings.Contains(err.Error(), text) {
		c.Errorf("%s: %v, %v, want %s %s", command, got, err, code, text)
	}
}

// limitsOf returns the limits of a reply as one text.
func limitsOf(reply []any) string { return fmt.Sprint(reply[len(reply)-1]) }

// Reservations, refunds and leases over RESP are those of REST: each wire sees what the other did.
func TestRESPReservations(t *testing.T) {
	t.Parallel()
	onEveryLimiter(t, func(t *testing.T, extra map[string]string, ready func(), away bool) {
		t.Helper()
		node, addr, operator, key := respNode(t, extra)
		ready()
		c := respCaller{t, respClient(t, addr, key, 3)}
		if away {
			c.withoutTheLimiter()
			return
		}
		rest := func(method, path, body string, header ...string) answer {
			return call(t, operator, method, node.origin+path, body, header...)
		}
		c.reservations(rest)
		c.refunds(rest)
		c.leases(rest)
		c.idempotentChecks()
		c.nearLimits()
		c.mistakes(respCaller{t, respClient(t, addr, operator, 2)})
	})
}

func (c respCaller) reservations(rest func(method, path, body string, header ...string) answer) {
	const reserve = "HEADGATE.RESERVE acme /v1/tokens TTL 60000 ID r1 COST 40 METHOD POST user u1"
	for replayed := range int64(2) {
		got := c.does(reserve)
		end, _ := got[12].(int64)
		if len(got) != 14 || got[0] != int64(1) || got[2] != int64(60) || got[11] != "r1" || got[13] != replayed || end < time.Now().UnixMilli() {
			c.Fatalf("reserve: %v", got)
		}
	}
	c.fails("HEADGATE.RESERVE acme /v1/tokens TTL 60000 ID r1 COST 41 METHOD POST user u1", "CONFLICT", "another request")
	if got := c.does("HEADGATE.RESERVE - /v1/tokens TTL 60000 ID r2 COST 61 METHOD POST user u1"); got[0] != int64(0) || got[5] != "over_limit" || got[11] != "" {
		c.Errorf("more than is left: %v", got)
	}
	first := c.does("HEADGATE.EXTEND - r1 120000 IDEMPOTENCY k1")
	again := c.does("HEADGATE.EXTEND - r1 120000 IDEMPOTENCY k1")
	if first[1] != "active" || first[3] != int64(0) || again[3] != int64(1) || first[2] != again[2] || limitsOf(first) != "[[tokens l1 40 40]]" {
		c.Errorf("extend: %v, then %v", first, again)
	}
	c.fails("HEADGATE.EXTEND - r1 60000 IDEMPOTENCY k1", "CONFLICT", "another ttl_ms")
	if a := rest("GET", "/v1/reservations/r1?tenant=acme", "").want(c.T, 200); !strings.Contains(a.body, `"active"`) {
		c.Errorf("over REST: %s", a.body)
	}
	for replayed := range int64(2) {
		if got := c.does("HEADGATE.SETTLE - r1 COST 10"); got[1] != "settled" || got[3] != replayed || limitsOf(got) != "[[tokens l1 40 10]]" {
			c.Errorf("settle: %v", got)
		}
	}
	c.fails("HEADGATE.SETTLE - r1 COST 11", "CONFLICT", "10 of 40 charged")
	c.fails("HEADGATE.RELEASE - r1", "CONFLICT", "was settled at")
	if got := c.does("HEADGATE.CHECK - /v1/tokens user u1 METHOD POST COST 0"); got[2] != int64(90) {
		c.Errorf("after the settle: %v", got)
	}

	// A key makes the same reservation on both wires.
	made := c.does("HEADGATE.RESERVE - /v1/tokens TTL 60000 COST 20 METHOD POST user u2 IDEMPOTENCY k2")
	a := rest("POST", "/v1/reservations", `{"tenant": "acme", "ttl_ms": 60000, "cost": 20, "method": "POST", "path": "/v1/tokens", "attributes": {"user": "u2"}}`,
		"Idempotency-Key", "k2").want(c.T, 201)
	if id, _ := made[11].(string); !strings.HasPrefix(id, "key-") || a.header.Get("Idempotent-Replayed") != "true" || !strings.Contains(a.body, `"`+id+`"`) {
		c.Errorf("a key on both wires: %v, %s", made, a.body)
	}
	if got := c.does(fmt.Sprintf("HEADGATE.RELEASE - %s", made[11])); got[1] != "released" || limitsOf(got) != "[[tokens l1 20 0]]" {
		c.Errorf("release: %v", got)
	}
}

func (c respCaller) refunds(rest func(method, path, body string, header ...string) answer) {
	const check = "HEADGATE.CHECK - /v1/tokens user u3 METHOD POST COST 5 REFUNDABLE 1"
	made := c.does(check)
	if until, _ := made[15].(int64); len(made) != 16 || made[2] != int64(95) || made[11] != int64(-1) || until < time.Now().UnixMilli() {
		c.Fatalf("a refundable check: %v", made)
	}
	refund := fmt.Sprintf("HEADGATE.REFUND - %s IDEMPOTENCY k1", made[7])
	for replayed := range int64(2) {
		if got := c.does(refund); got[1] != replayed || limitsOf(got) != "[[tokens l1 5 5]]" {
			c.Errorf("refund: %v", got)
		}
	}
	c.fails(fmt.Sprintf("HEADGATE.REFUND - %s", made[7]), "CONFLICT", "was refunded at")
	rest("POST", fmt.Sprintf("/v1/checks/%s/refund?tenant=acme", made[7]), "").want(c.T, 409)
	c.fails("HEADGATE.REFUND - 01939c1e-5a7b-7c3d-9e2f-0a1b2c3d4e5f", "NOTFOUND", "can be refunded")
	c.fails("HEADGATE.REFUND - nonsense", "NOTFOUND", "can be refunded")
}

func (c respCaller) leases(rest func(method, path, body string, header ...string) answer) {
	const check = "HEADGATE.CHECK - /v1/jobs user u1 METHOD POST LEASE job-%d TTL 60000"
	for range 2 {
		if got := c.does(fmt.Sprintf(check, 1)); got[0] != int64(1) || got[13] != "job-1" || got[14] != int64(60000) {
			c.Errorf("a lease: %v", got)
		}
	}
	if got := c.does(fmt.Sprintf(check, 2)); got[0] != int64(0) || got[13] != "" {
		c.Errorf("a second lease: %v", got)
	}
	if a := rest("GET", "/v1/tenants/acme/leases?policy=jobs&key[user]=u1", "").want(c.T, 200); !strings.Contains(a.body, `"job-1"`) {
		c.Errorf("over REST: %s", a.body)
	}
	for _, want := range []int64{1, 0} {
		if got, err := c.sends("HEADGATE.RELEASE - /v1/jobs user u1 METHOD POST LEASE job-1").Int64(); err != nil || got != want {
			c.Errorf("release: %d, %v, want %d", got, err, want)
		}
	}
	if got := c.does(fmt.Sprintf(check, 2)); got[0] != int64(1) {
		c.Errorf("after the release: %v", got)
	}
}

// 100 checks with one key at the same time are charged once.
func (c respCaller) idempotentChecks() {
	var all sync.WaitGroup
	ids := make([]string, 100)
	for k := range 4 {
		all.Go(func() {
			pipe := c.client.Pipeline()
			var replies []*redis.Cmd
			for range len(ids) / 4 {
				replies = append(replies, pipe.Do(c.Context(), "HEADGATE.CHECK", "-", "/v1/tokens", "user", "u4", "METHOD", "POST", "COST", 3, "IDEMPOTENCY", "k4"))
			}
			if _, err := pipe.Exec(c.Context()); err != nil {
				c.Error(err)
				return
			}
			for i, reply := range replies {
				got, err := reply.Slice()
				if err != nil || got[0] != int64(1) || got[2] != int64(97) {
					c.Errorf("%v, %v", got, err)
					return
				}
				ids[k*len(ids)/4+i] = got[7].(string)
			}
		})
	}
	all.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		c.Errorf("the decisions are %v", slices.Compact(ids))
	}
	c.fails("HEADGATE.CHECK - /v1/tokens user u4 METHOD POST COST 4 IDEMPOTENCY k4", "CONFLICT", "belongs to another check")
	if got := c.does("HEADGATE.CHECK - /v1/tokens user u4 METHOD POST COST 200 MODE take_up_to"); got[0] != int64(1) || got[11] != int64(97) {
		c.Errorf("take_up_to: %v", got)
	}
}

// The threshold that is reached is the last value of a reply that asks for it. Other replies have the
// values that they had before.
func (c respCaller) nearLimits() {
	for _, step := range []struct {
		command string
		values  int
		near    any // of the last value; nil: the reply has none
	}{
		{"HEADGATE.CHECK - /v1/tokens user u5 METHOD POST COST 79 NEAR_LIMIT 1", 17, int64(0)},
		{"HEADGATE.CHECK - /v1/tokens user u5 METHOD POST NEAR_LIMIT 1", 17, int64(80)},
		{"HEADGATE.CHECK - /v1/tokens user u5 METHOD POST", 11, nil},
		{"HEADGATE.CHECK - /v1/tokens NEAR_LIMIT 0 user u5 METHOD POST", 11, nil},
		{"HEADGATE.CHECK - /v1/tokens user u5 METHOD POST REFUNDABLE 1", 16, nil},
		{"HEADGATE.CHECK - /v1/tokens user u5 METHOD POST MODE peek NEAR_LIMIT 1 COST 100", 17, int64(80)},
		{"HEADGATE.RESERVE - /v1/tokens user u5 METHOD POST TTL 60000 COST 11", 14, nil},
		{"HEADGATE.RESERVE - /v1/tokens user u5 METHOD POST TTL 60000 NEAR_LIMIT 1", 15, int64(95)},
	} {
		got := c.does(step.command)
		if len(got) != step.values || step.near != nil && got[len(got)-1] != step.near {
			c.Errorf("%s: %v, want %d values and near %v", step.command, got, step.values, step.near)
		}
	}
}

// Each error names the argument or the reason, and nothing is charged.
func (c respCaller) mistakes(operator respCaller) {
	c.fails("HEADGATE.RESERVE - /v1/tokens METHOD POST", "ERR", "TTL is required")
	c.fails("HEADGATE.RESERVE - /v1/tokens TTL 999", "ERR", "TTL must be a whole number from 1000 to 86400000")
	c.fails("HEADGATE.RESERVE - /v1/tokens TTL 60000 user", "ERR", "use HEADGATE.RESERVE tenant path TTL ms")
	c.fails("HEADGATE.RESERVE - /v1/tokens TTL 60000 METHOD POST MODE peek", "ERR", "mode must be enforce or force")
	c.fails("HEADGATE.RESERVE - /v1/tokens TTL 60000 METHOD POST ID .a", "ERR", "ID must be 1 to 64 letters")
	c.fails("HEADGATE.RESERVE - /v1/tokens TTL 60000", "ERR", "method is required")
	c.fails("HEADGATE.RESERVE globex /v1/tokens TTL 60000 METHOD POST", "NOPERM", "only its own tenant")
	c.fails("HEADGATE.SETTLE - r9 COST 1", "NOTFOUND", "no such reservation")
	c.fails("HEADGATE.SETTLE - r9 COST", "ERR", "use HEADGATE.SETTLE tenant id")
	c.fails("HEADGATE.SETTLE - r9 COST -1", "ERR", "COST must be a whole number")
	c.fails("HEADGATE.SETTLE - r9 cost 10", "ERR", "attributes/cost is not the cost of a policy")
	c.fails("HEADGATE.SETTLE - r9 COST 1 COST 2", "ERR", "COST is given twice")
	for _, option := range []string{"METHOD POST", "MODE force", "IDEMPOTENCY k1", "TTL 5000", "LEASE j", "REFUNDABLE 1", "ID r2", "NEAR_LIMIT 1"} {
		c.fails("HEADGATE.SETTLE - r9 COST 1 "+option, "ERR", strings.Fields(option)[0]+" is not an option of this command")
	}
	for _, option := range []string{"REFUNDABLE 1", "LEASE job-1"} {
		c.fails("HEADGATE.RESERVE - /v1/tokens TTL 60000 METHOD POST "+option, "ERR", strings.Fields(option)[0]+" is not an option of this command")
	}
	c.fails("HEADGATE.RESERVE - /v1/tokens TTL 60000 METHOD POST TTL 60000", "ERR", "TTL is given twice")
	c.fails("HEADGATE.RELEASE - /v1/tokens METHOD POST LEASE j COST 1", "ERR", "COST is not an option of this command")
	c.fails("HEADGATE.EXTEND - r9 1", "ERR", "the time must be a whole number from 1000")
	c.fails("HEADGATE.EXTEND - r9 60000", "NOTFOUND", "no such reservation")
	c.fails("HEADGATE.EXTEND - r9 60000 KEY k", "ERR", "the only option is IDEMPOTENCY")
	c.fails("HEADGATE.RELEASE - r9", "NOTFOUND", "no such reservation")
	c.fails("HEADGATE.RELEASE globex r1", "NOPERM", "only its own tenant")
	c.fails("HEADGATE.RELEASE - /v1/jobs METHOD POST", "ERR", "LEASE is required")
	c.fails("HEADGATE.RELEASE - /v1/jobs LEASE", "ERR", "use HEADGATE.RELEASE tenant id")
	c.fails("HEADGATE.CHECK - /v1/tokens METHOD POST LEASE x TTL 0", "ERR", "TTL must be a whole number from 1")
	c.fails("HEADGATE.CHECK - /v1/tokens METHOD POST REFUNDABLE yes", "ERR", "REFUNDABLE must be a whole number from 0 to 1")
	c.fails("HEADGATE.CHECK - /v1/tokens METHOD POST REFUNDABLE 1 MODE peek", "ERR", "refundable must be false")
	c.fails("HEADGATE.CHECK - /v1/tokens METHOD POST NEAR_LIMIT 80", "ERR", "NEAR_LIMIT must be a whole number from 0 to 1")
	operator.fails("HEADGATE.RESERVE - /v1/tokens TTL 60000 METHOD POST", "ERR", "tenant is required")
	operator.fails("HEADGATE.SETTLE globex r1 COST 1", "NOTFOUND", "no such reservation")
	operator.fails("HEADGATE.SETTLE nobody r1", "NOTFOUND", "NOTFOUND no such tenant")
	if err := operator.client.Do(c.Context(), "HEADGATE.SETTLE", "nobody", "r1").Err(); strings.Contains(err.Error(), ";") {
		c.Errorf("said twice: %v", err)
	}
	if got := c.does("HEADGATE.CHECK - /v1/tokens user u9 METHOD POST COST 0"); got[2] != int64(100) {
		c.Errorf("after the mistakes: %v", got)
	}
}

// Without Redis, a reservation is decided by the failure mode and leaves nothing to settle.
func (c respCaller) withoutTheLimiter() {
	if got := c.does("HEADGATE.RESERVE - /v1/tokens TTL 60000 ID r1 METHOD POST user u1"); got[0] != int64(1) || got[8] != int64(1) || got[11] != "" || got[12] != int64(0) {
		c.Errorf("reserve: %v", got)
	}
	c.fails("HEADGATE.SETTLE - r1 COST 1", "TRYAGAIN", "at most once")
	c.fails("HEADGATE.REFUND - 01939c1e-5a7b-7c3d-9e2f-0a1b2c3d4e5f", "TRYAGAIN", "at most once")
}
