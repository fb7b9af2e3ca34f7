//go:build !quick

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// usageOf returns a report of one bucket with pairs of a key and a value.
func usageOf(domain string, allowed, denied uint64, pairs ...string) *quotav3.RateLimitQuotaUsageReports {
	id := &quotav3.BucketId{Bucket: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		id.Bucket[pairs[i]] = pairs[i+1]
	}
	return &quotav3.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: id, NumRequestsAllowed: allowed, NumRequestsDenied: denied},
	}}
}

// A quotaClient is a gRPC stream on which Envoy reports its usage and receives its quota.
type quotaClient struct {
	t      testing.TB
	stream quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient
}

func openQuota(ctx context.Context, t testing.TB, node envoyNode) quotaClient {
	t.Helper()
	stream, err := quotav3.NewRateLimitQuotaServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials())).StreamRateLimitQuotas(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return quotaClient{t, stream}
}

// assigned sends a report and returns its only assignment: the number of requests, or the rule for all requests.
func (c quotaClient) assigned(r *quotav3.RateLimitQuotaUsageReports) (requests uint32, rule string) {
	c.t.Helper()
	if err := c.stream.Send(r); err != nil {
		c.t.Fatal(err)
	}
	a, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	s := strategyOf(c.t, a)
	if b := s.GetTokenBucket(); b != nil {
		return b.GetMaxTokens(), ""
	}
	return 0, s.GetStrategy().(*typev3.RateLimitStrategy_BlanketRule_).BlanketRule.String()
}

// strategyOf returns the strategy for one bucket in a response. A token bucket is preceded by
// another strategy, because Envoy otherwise keeps the tokens of the previous bucket.
func strategyOf(t testing.TB, r *quotav3.RateLimitQuotaResponse) *typev3.RateLimitStrategy {
	t.Helper()
	var last *typev3.RateLimitStrategy
	for _, action := range r.GetBucketAction() {
		next := action.GetQuotaAssignmentAction().GetRateLimitStrategy()
		if next.GetTokenBucket() != nil && last.GetStrategy() == nil {
			t.Fatalf("a token bucket comes first: %v", r)
		}
		last = next
	}
	if last.GetStrategy() == nil {
		t.Fatalf("no strategy: %v", r)
	}
	return last
}

// An assigned quota is charged like the same number of checks. Requests without an assigned
// quota are charged when Envoy reports them.
func TestEnvoyQuota(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, map[string]string{"HEADGATE_ENVOY_DOMAINS": "edge=globex, gateway=@customer"})
	address := []string{"remote_address", "203.0.113.1"} // 5 in two minutes
	remaining := func() string {
		t.Helper()
		body := `{"method": "RATELIMIT", "path": "/ratelimit/edge", "attributes": {"ip": "203.0.113.1"}, "mode": "peek", "cost": 0}`
		left, _, _ := strings.Cut(call(t, node.key, "POST", node.origin+"/v1/check", body).header.Get("RateLimit"), ";t=")
		return left
	}
	c := openQuota(with(t.Context(), node.key), t, node)
	if n, rule := c.assigned(usageOf("edge", 1, 1, address...)); n != 2 || remaining() != `"address";r=2` {
		t.Fatalf("first: %d %s, %s; want 2 of the 4 that are left", n, rule, remaining())
	}
	if n, rule := c.assigned(usageOf("", 2, 3, address...)); n != 1 || remaining() != `"address";r=1` {
		t.Errorf("second: %d %s, %s", n, rule, remaining())
	}
	other := openQuota(with(t.Context(), node.key), t, node)
	if n, rule := other.assigned(usageOf("edge", 0, 1, address...)); n != 1 || remaining() != `"address";r=0` {
		t.Errorf("another Envoy: %d %s, %s", n, rule, remaining())
	}
	if n, rule := c.assigned(usageOf("edge", 1, 3, address...)); rule != "DENY_ALL" {
		t.Errorf("used up: %d %s", n, rule)
	}
	metrics := call(t, bootstrap, "GET", node.origin+"/metrics", "").want(t, 200).body
	for outcome, count := range map[string]int{"allowed": 5, "refused": 1} {
		if line := fmt.Sprintf(`headgate_wire_decisions_total{outcome=%q,wire="envoy_quota"} %d`, outcome, count); !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics have no line %s", line)
		}
	}
	// A request that cannot be a check is denied. It does not end the stream.
	if _, rule := c.assigned(usageOf("edge", 0, 1, "remote_address", "nonsense")); rule != "DENY_ALL" {
		t.Errorf("a wrong address: %s", rule)
	}
	if _, rule := c.assigned(usageOf("edge", 0, 1, "user", "u1")); rule != "ALLOW_ALL" {
		t.Errorf("without a policy: %s", rule)
	}

	// With an operator key, the domain or an entry names the tenant.
	for domain, want := range map[string]string{"unknown": "ALLOW_ALL", "gateway": "DENY_ALL", "acme": "DENY_ALL"} {
		pairs := address
		if domain == "gateway" {
			pairs = append([]string{"customer", "unknown"}, address...)
		}
		if n, rule := openQuota(with(t.Context(), bootstrap), t, node).assigned(usageOf(domain, 0, 1, pairs...)); domain != "acme" && rule != want {
			t.Errorf("%s: %d %s, want %s", domain, n, rule, want)
		}
	}
	if n, _ := openQuota(with(t.Context(), bootstrap, "headgate-assignment", "2", "headgate-cost", "2"), t, node).assigned(usageOf("edge", 0, 1, address...)); n != 1 {
		t.Errorf("%d requests that cost 2, want 1: half of the 2 that 5 units allow", n)
	}

	// The node ends its streams when it stops.
	done := make(chan error, 1)
	go func() { _, err := other.stream.Recv(); done <- err }()
	node.stop()
	if err := <-done; status.Code(err) != codes.Unavailable {
		t.Errorf("at the end of the node: %v", err)
	}
}

// A wrong report ends the stream with an error that names the field, and charges nothing.
func TestEnvoyQuotaRefuses(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, nil)
	good := usageOf("edge", 0, 1, "remote_address", "203.0.113.1")
	for _, c := range []struct {
		key, option string
		report      *quotav3.RateLimitQuotaUsageReports
		code        codes.Code
		want        string
	}{
		{"hg_tn_nonsense", "", good, codes.Unauthenticated, "API key"},
		{node.key, "", usageOf("", 0, 1, "remote_address", "203.0.113.1"), codes.InvalidArgument, "domain: is required"},
		{node.key, "", usageOf("edge", 0, 1), codes.InvalidArgument, "bucket_quota_usages[0].bucket_id: is required"},
		{node.key, "", usageOf("edge", 1<<40, 1, "user", "u1"), codes.InvalidArgument, "bucket_quota_usages[0].num_requests_allowed"},
		{node.key, "0", good, codes.InvalidArgument, "headgate-assignment: must be a whole number from 1"},
		{node.key, "x", good, codes.InvalidArgument, "headgate-assignment: must be a whole number from 1"},
		{node.key, "", usageOf("edge", 0, 1, "user", strings.Repeat("x", 2<<20)), codes.ResourceExhausted, "larger than max"},
	} {
		ctx := with(t.Context(), c.key)
		if c.option != "" {
			ctx = with(t.Context(), c.key, "headgate-assignment", c.option)
		}
		stream := openQuota(ctx, t, node).stream
		_ = stream.Send(c.report)
		if a, err := stream.Recv(); status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.want) || strings.Contains(err.Error(), "nonsense") {
			t.Errorf("%v, %v; want %v %s", a, err, c.code, c.want)
		}
	}
	ctx, cancel := context.WithTimeout(with(t.Context(), node.key), 30*time.Second)
	defer cancel()
	misspelled := openQuota(with(t.Context(), node.key, "headgate-asignment", "100"), t, node).stream
	_ = misspelled.Send(good)
	if _, err := misspelled.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `"headgate-asignment" is not an option`) {
		t.Errorf("a misspelled option: %v", err)
	}
	c := openQuota(ctx, t, node)
	if n, _ := c.assigned(good); n != 3 {
		t.Errorf("after the errors: %d, want half of 5", n)
	}
	if err := c.stream.Send(usageOf("other", 0, 1, "remote_address", "203.0.113.1")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "domain: must be that of the first report") {
		t.Errorf("another domain: %v", err)
	}
}
