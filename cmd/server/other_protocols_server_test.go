//go:build !quick

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/testseed"
)

// wirePolicies are policies of every algorithm, with several limits on some requests. Their windows are so long that the
// test does not see them end.
const wirePolicies = `[
	{"slug": "all", "count_by": ["ip"], "limits": [{"algorithm": "fixed_window", "quota": 60, "window": "30d"}]},
	{"slug": "login", "match": {"path": "/v1/login", "methods": ["POST"]}, "count_by": ["ip"], "limits": [{"algorithm": "sliding_window_log", "quota": 9, "window": "30d"}]},
	{"slug": "items", "match": {"path": "/v1/items/*"}, "count_by": ["user"], "cost": 2, "limits": [{"algorithm": "token_bucket", "quota": 12, "window": "300d"}]},
	{"slug": "tokens", "match": {"path": "/v1/other"}, "count_by": ["ip"], "cost_from": "tokens", "limits": [{"algorithm": "fixed_window", "quota": 40, "window": "30d"}]},
	{"slug": "write", "match": {"path": "/v1/items/*", "methods": ["PUT"]}, "count_by": ["user"], "limits": [{"algorithm": "gcra", "quota": 7, "window": "300d"}]},
	{"slug": "shadow", "mode": "shadow", "limits": [{"algorithm": "fixed_window", "quota": 3, "window": "30d"}]}
]`

// A wireCheck is one check of the script.
type wireCheck struct {
	method, path, ip, user, tokens string // user and tokens are "" if the check has none
	cost                           int    // -1: none is sent
}

// attributes returns the names and values of user and tokens.
func (c wireCheck) attributes() (pairs []string) {
	if c.user != "" {
		pairs = append(pairs, "user", c.user)
	}
	if c.tokens != "" {
		pairs = append(pairs, "tokens", c.tokens)
	}
	return pairs
}

// headers returns the attributes as headers, x-user and x-tokens.
func (c wireCheck) headers() []string {
	pairs := c.attributes()
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "x-" + pairs[i]
	}
	return pairs
}

// A wireAnswer is what all wires say of a decision: the verdict and the tightest limit.
type wireAnswer struct {
	Allowed          bool
	Limit            string // "" if no limit decided
	Quota, Remaining int64
}

func wireScript(t *testing.T) []wireCheck {
	random := rand.New(rand.NewPCG(testseed.Seed(t), 0))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	script := make([]wireCheck, 200)
	for i := range script {
		script[i] = wireCheck{
			one("GET", "POST", "PUT"), one("/v1/login", "/v1/items/1", "/v1/items/2", "/v1/other"),
			one("192.0.2.1", "192.0.2.2", "2001:db8::1", "203.0.113.7"), one("u1", "u2", "u3", ""), one("0", "5", "9", ""), random.IntN(5) - 1,
		}
	}
	return script
}

// answerOf reads the answer from the body of POST /v1/check.
func answerOf(t *testing.T, body string) wireAnswer {
	t.Helper()
	var d struct {
		Allowed *bool
		Limits  []struct {
			Policy, Mode     string
			Quota, Remaining int64
			Allowed          bool
			RetryAfterMS     *int64 `json:"retry_after_ms"`
		}
	}
	if err := json.Unmarshal([]byte(body), &d); err != nil || d.Allowed == nil {
		t.Fatalf("%v: %s", err, body)
	}
	a := wireAnswer{Allowed: *d.Allowed}
	wait, least := int64(-1), int64(-1)
	for _, l := range d.Limits {
		if l.Mode == "shadow" {
			continue
		}
		retry := int64(1 << 62) // null: never
		if l.RetryAfterMS != nil {
			retry = *l.RetryAfterMS
		}
		if !a.Allowed && !l.Allowed && retry > wait || a.Allowed && (least < 0 || l.Remaining < least) {
			wait, least = retry, l.Remaining
			a.Limit, a.Quota, a.Remaining = l.Policy, l.Quota, l.Remaining
		}
	}
	return a
}

// A script of 200 checks has the same answers on every wire, and is counted by its wire.
func TestSameDecisionsOnEveryWire(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false",
		"HEADGATE_TRUSTED_PROXIES": "127.0.0.1/32", "HEADGATE_RESP_ADDR": "127.0.0.1:0", "HEADGATE_ENVOY_ADDR": "127.0.0.1:0",
	})
	made := call(t, bootstrap, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+wirePolicies+`}}`).want(t, 201)
	call(t, bootstrap, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	conn := dialEnvoy(t, node.await(node.logs, envoyAddr)[1], insecure.NewCredentials())
	respAt := node.await(node.logs, respAddr)[1]

	// run plays the script for one tenant, with the key of the tenant.
	wires := map[enforcement.Wire]func(t *testing.T, key string, script []wireCheck) []wireAnswer{
		enforcement.WireCheck: func(t *testing.T, key string, script []wireCheck) (answers []wireAnswer) {
			for _, c := range script {
				answers = append(answers, answerOf(t, call(t, key, "POST", node.origin+"/v1/check", c.json()).body))
			}
			return answers
		},
		enforcement.WireBatch: func(t *testing.T, key string, script []wireCheck) (answers []wireAnswer) {
			for part := range slices.Chunk(script, 20) {
				var bodies []string
				for _, c := range part {
					bodies = append(bodies, c.json())
				}
				var batch struct{ Results []json.RawMessage }
				call(t, key, "POST", node.origin+"/v1/check/batch", `{"checks": [`+strings.Join(bodies, ",")+`]}`).want(t, 200).into(t, &batch)
				for _, one := range batch.Results {
					answers = append(answers, answerOf(t, string(one)))
				}
			}
			return answers
		},
		enforcement.WireForwardAuth: func(t *testing.T, key string, script []wireCheck) (answers []wireAnswer) {
			for _, c := range script {
				header := []string{"X-Forwarded-Method", c.method, "X-Forwarded-Uri", c.path, "X-Forwarded-For", c.ip}
				query := "attributes=user:header:X-User,tokens:header:X-Tokens"
				if c.cost >= 0 {
					header, query = append(header, "X-Cost", strconv.Itoa(c.cost)), query+"&cost=header:X-Cost"
				}
				a := call(t, key, "GET", node.origin+"/v1/forward-auth?"+query, "", append(header, c.headers()...)...)
				answers = append(answers, answerOf(t, a.body))
			}
			return answers
		},
		enforcement.WireEnvoyAuthorization: func(t *testing.T, key string, script []wireCheck) (answers []wireAnswer) {
			service := authv3.NewAuthorizationClient(conn)
			for _, c := range script {
				r := httpRequest(c.method, c.path, c.headers()...)
				r.Attributes.Source.Address.GetSocketAddress().Address = c.ip
				if c.cost >= 0 {
					r.Attributes.ContextExtensions = map[string]string{"cost": strconv.Itoa(c.cost)}
				}
				a, err := service.Check(with(t.Context(), key, "headgate-attributes", "user:header:x-user,tokens:header:x-tokens"), r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := a.GetDynamicMetadata().MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, answerOf(t, string(body)))
				if code := a.GetDeniedResponse().GetStatus().GetCode(); answers[len(answers)-1].Allowed != (code == 0) || code != 0 && code != http.StatusTooManyRequests {
					t.Errorf("%+v: status %v", c, code)
				}
			}
			return answers
		},
		enforcement.WireEnvoyRateLimit: func(t *testing.T, key string, script []wireCheck) (answers []wireAnswer) {
			service := ratelimitv3.NewRateLimitServiceClient(conn)
			for _, c := range script {
				d := entries(append([]string{":method", c.method, ":path", c.path, "remote_address", c.ip}, c.attributes()...)...)
				if c.cost >= 0 {
					d.HitsAddend = wrapperspb.UInt64(uint64(c.cost))
				}
				a, err := service.ShouldRateLimit(with(t.Context(), key), &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: []*descriptorv3.RateLimitDescriptor{d}})
				if err != nil {
					t.Fatal(err)
				}
				s := a.GetStatuses()[0]
				answers = append(answers, wireAnswer{
					s.GetCode() == ratelimitv3.RateLimitResponse_OK, s.GetCurrentLimit().GetName(), int64(s.GetCurrentLimit().GetRequestsPerUnit()), int64(s.GetLimitRemaining()),
				})
			}
			return answers
		},
		enforcement.WireRESP: func(t *testing.T, key string, script []wireCheck) (answers []wireAnswer) {
			pipe := respClient(t, respAt, key, 3).Pipeline()
			for _, c := range script {
				args := []any{"HEADGATE.CHECK", "-", c.path, "ip", c.ip, "METHOD", c.method}
				if c.cost >= 0 {
					args = append(args, "COST", c.cost)
				}
				for _, text := range c.attributes() {
					args = append(args, text)
				}
				pipe.Do(t.Context(), args...)
			}
			replies, err := pipe.Exec(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, reply := range replies {
				got, err := reply.(*redis.Cmd).Slice()
				if err != nil || len(got) != 9 {
					t.Fatalf("%v, %v", got, err)
				}
				a := wireAnswer{got[0] == int64(1), got[6].(string), got[1].(int64), got[2].(int64)}
				if a.Limit == "" {
					a.Quota, a.Remaining = 0, 0 // the reply has -1
				}
				answers = append(answers, a)
			}
			return answers
		},
	}
	wires[enforcement.WireEnvoyQuota] = func(t *testing.T, key string, script []wireCheck) []wireAnswer {
		return quotaAnswers(t, quotav3.NewRateLimitQuotaServiceClient(conn), key, script)
	}
	if len(wires) != int(enforcement.NumWires) {
		t.Fatalf("the test plays %d wires of %d", len(wires), enforcement.NumWires)
	}
	script := wireScript(t)
	var want []wireAnswer
	for wire := range enforcement.NumWires {
		slug := fmt.Sprintf("wire%d", wire)
		call(t, bootstrap, "POST", node.origin+"/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": {"name": "Customer", "plan": "pro"}}`, slug)).want(t, 201)
		var created struct{ Token string }
		call(t, bootstrap, "POST", node.origin+"/v1/tenants/"+slug+"/keys", `{"name": "gateway", "scopes": ["check"]}`).want(t, 201).into(t, &created)
		answers := wires[wire](t, created.Token, script)
		allowed := 0
		for _, a := range answers {
			if a.Allowed {
				allowed++
			}
		}
		if want == nil {
			want = answers
			if allowed < 20 || allowed > 180 {
				t.Fatalf("%d of the checks are allowed: the script decides too little", allowed)
			}
		}
		if len(answers) != len(want) {
			t.Fatalf("%v: %d answers, want %d", wire, len(answers), len(want))
		}
		for i, a := range answers {
			if wire == enforcement.WireEnvoyQuota { // says only whether a request is allowed
				a.Limit, a.Quota, a.Remaining = want[i].Limit, want[i].Quota, want[i].Remaining
			}
			if a != want[i] {
				t.Fatalf("%v, check %d %+v: %+v, want %+v as over %v", wire, i, script[i], a, want[i], enforcement.WireCheck)
			}
		}
		metrics := call(t, bootstrap, "GET", node.origin+"/metrics", "").want(t, 200).body
		for outcome, n := range map[string]int{"allowed": allowed, "refused": len(script) - allowed} {
			line := fmt.Sprintf(`headgate_wire_decisions_total{outcome=%q,wire=%q} %d`, outcome, cmp.Or(wire.String(), "-"), n)
			if !strings.Contains(metrics, line+"\n") {
				t.Errorf("the metrics have no line %s", line)
			}
		}
	}
}

// quotaAnswers plays the script as an Envoy that denies requests without an assignment. Its assignments are one request,
// so that no request is charged before it is sent. Each cost has a stream.
func quotaAnswers(t *testing.T, service quotav3.RateLimitQuotaServiceClient, key string, script []wireCheck) (answers []wireAnswer) {
	t.Helper()
	streams := map[int]quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient{}
	used := map[string]uint64{}      // allowed requests of a bucket that are not reported
	unlimited := map[string]func(){} // by the bucket; reports its requests
	for _, c := range script {
		stream := streams[c.cost]
		if stream == nil {
			ctx := with(t.Context(), key, "headgate-assignment", "1")
			if c.cost >= 0 {
				ctx = metadata.AppendToOutgoingContext(ctx, "headgate-cost", strconv.Itoa(c.cost))
			}
			var err error
			if stream, err = service.StreamRateLimitQuotas(ctx); err != nil {
				t.Fatal(err)
			}
			streams[c.cost] = stream
		}
		id := &quotav3.BucketId{Bucket: map[string]string{":method": c.method, ":path": c.path, "remote_address": c.ip}}
		for pair := range slices.Chunk(c.attributes(), 2) {
			id.Bucket[pair[0]] = pair[1]
		}
		bucket := fmt.Sprint(c.cost, id.Bucket)
		if unlimited[bucket] != nil {
			used[bucket]++
			answers = append(answers, wireAnswer{Allowed: true})
			continue
		}
		if err := stream.Send(&quotav3.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: id, NumRequestsAllowed: used[bucket], NumRequestsDenied: 1},
		}}); err != nil {
			t.Fatal(err)
		}
		used[bucket] = 0
		response, err := stream.Recv()
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		strategy := strategyOf(t, response)
		tokens, blanket := strategy.GetTokenBucket(), strategy.GetBlanketRule()
		assigned := response.GetBucketAction()[0].GetQuotaAssignmentAction()
		allowed := tokens.GetMaxTokens() == 1 || tokens == nil && blanket == typev3.RateLimitStrategy_ALLOW_ALL
		if ttl := assigned.GetAssignmentTimeToLive().AsDuration(); ttl < time.Second || ttl > 20*time.Second || tokens.GetMaxTokens() > 1 {
			t.Fatalf("%+v: %v", c, response)
		}
		if allowed {
			used[bucket] = 1
		}
		if allowed && tokens == nil {
			unlimited[bucket] = func() {
				_ = stream.Send(&quotav3.RateLimitQuotaUsageReports{BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
					{BucketId: id, NumRequestsAllowed: used[bucket]},
				}})
			}
		}
		answers = append(answers, wireAnswer{Allowed: allowed})
	}
	for _, report := range unlimited {
		report()
	}
	for _, stream := range streams {
		_ = stream.CloseSend()
		if a, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v, %v", a, err)
		}
	}
	return answers
}

// json returns the body of POST /v1/check.
func (c wireCheck) json() string {
	cost, attributes := "", fmt.Sprintf(`"ip": %q`, c.ip)
	if c.cost >= 0 {
		cost = fmt.Sprintf(`, "cost": %d`, c.cost)
	}
	for pair := range slices.Chunk(c.attributes(), 2) {
		attributes += fmt.Sprintf(`, %q: %q`, pair[0], pair[1])
	}
	return fmt.Sprintf(`{"method": %q, "path": %q%s, "attributes": {%s}}`, c.method, c.path, cost, attributes)
}
