//go:build !quick

package main

import (
	"strings"
	"testing"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// limited returns a descriptor of a user with a limit.
func limited(user string, perUnit uint32, unit typev3.RateLimitUnit) *descriptorv3.RateLimitDescriptor {
	d := entries(":method", "GET", ":path", "/v1/items", "user", user)
	d.Limit = &descriptorv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: perUnit, Unit: unit}
	return d
}

// A call with an operator's key can send a limit for a descriptor. The limit replaces the limits of the policy and has a
// separate counter. The test runs on both limiters, and with the local share while Redis is away.
func TestEnvoyLimitOfADescriptor(t *testing.T) {
	t.Parallel()
	onEveryLimiter(t, func(t *testing.T, extra map[string]string, ready func(), _ bool) {
		t.Helper()
		node := startEnvoy(t, extra)
		ready()
		sendLimits(t, node)
	})
}

func sendLimits(t *testing.T, node envoyNode) {
	service := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials()))
	ask := func(descriptors ...*descriptorv3.RateLimitDescriptor) []*ratelimitv3.RateLimitResponse_DescriptorStatus {
		t.Helper()
		a, err := service.ShouldRateLimit(with(t.Context(), bootstrap), &ratelimitv3.RateLimitRequest{Domain: "acme", Descriptors: descriptors})
		if err != nil {
			t.Fatal(err)
		}
		return a.GetStatuses()
	}
	const year = typev3.RateLimitUnit_YEAR // does not end while the test runs
	plain := entries(":method", "GET", ":path", "/v1/items", "user", "u1")
	free := limited("u1", 3, year)
	free.HitsAddend = wrapperspb.UInt64(0)
	for i, step := range []struct {
		sent      *descriptorv3.RateLimitDescriptor
		quota     uint32
		remaining uint32
		denied    bool
	}{
		{plain, 10, 9, false},
		{limited("u1", 3, year), 3, 2, false},
		{limited("u1", 3, year), 3, 1, false},
		{limited("u1", 4, year), 4, 1, false}, // another quota, the same counter
		{limited("u1", 3, year), 3, 0, true},
		{free, 3, 0, false},
		{limited("u1", 1, typev3.RateLimitUnit_MONTH), 1, 0, false}, // another unit, another counter
		{limited("u2", 4294967295, year), 4294967295, 4294967294, false},
		{limited("u2", 0, year), 0, 0, true},
		{plain, 10, 8, false},
	} {
		s := ask(step.sent)[0]
		if denied := s.GetCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT; denied != step.denied || s.GetLimitRemaining() != step.remaining ||
			s.GetCurrentLimit().GetRequestsPerUnit() != step.quota || s.GetCurrentLimit().GetName() != "user" {
			t.Fatalf("step %d: %v", i, s)
		}
	}
	// Several limits of one call, also on one counter, are decided in order.
	all := ask(limited("u3", 2, year), limited("u3", 1, year), limited("u3", 2, year), entries(":method", "GET", ":path", "/v1/items", "user", "u3"))
	for i, want := range []uint32{1, 0, 0, 9} {
		denied := all[i].GetCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT
		if all[i].GetLimitRemaining() != want || denied != (i == 1) {
			t.Errorf("descriptor %d: %v", i, all[i])
		}
	}
	none := limited("u1", 3, year)
	none.Entries = entries(":path", "/v1/none").GetEntries()
	for _, c := range []struct {
		key  string
		sent *descriptorv3.RateLimitDescriptor
		code codes.Code
		want string
	}{
		{node.key, limited("u4", 1000000, year), codes.PermissionDenied, "descriptors[1]: limit: only an operator key may replace a limit"},
		{bootstrap, limited("u4", 3, typev3.RateLimitUnit_UNKNOWN), codes.InvalidArgument, "descriptors[1].limit.unit: must be SECOND, MINUTE, HOUR, DAY, MONTH or YEAR"},
		{bootstrap, limited("u4", 3, 99), codes.InvalidArgument, "descriptors[1].limit.unit: must be"},
		{bootstrap, none, codes.InvalidArgument, "no enforced policy of the plan applies"},
	} {
		_, err := service.ShouldRateLimit(with(t.Context(), c.key), &ratelimitv3.RateLimitRequest{
			Domain: "acme", Descriptors: []*descriptorv3.RateLimitDescriptor{entries(":method", "GET", ":path", "/v1/items", "user", "u4"), c.sent},
		})
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.want) {
			t.Errorf("%v, want %v %q", err, c.code, c.want)
		}
	}
	if s := ask(entries(":method", "GET", ":path", "/v1/items", "user", "u4"))[0]; s.GetLimitRemaining() != 9 {
		t.Errorf("the errors charged: %v", s)
	}
}
