package envoy

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/connlimit"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// tenantWith returns a snapshot of the tenant bench with a limit for each user, and a key with a token.
func tenantWith(b testing.TB, token string, limit enforcement.Limit) func() *snapshot.Snapshot {
	b.Helper()
	policy := plans.Policy{Slug: "per-user", CountBy: []string{"user"}, Limits: []enforcement.Limit{limit}}
	s, report := snapshot.Compile(nil, snapshot.Changes{
		Plans: []snapshot.PublishedPlan{{
			ID: "plan", Slug: "plan", Version: 1, Document: plans.New(plans.Content{Policies: []plans.Policy{policy}}),
			Limits: []plans.Published{{
				Cell: plans.Cell{Number: 1, Policy: policy.Slug, Limit: limit.Name, Algorithm: limit.Algorithm, Anchor: limit.Anchor, CountBy: policy.CountBy}, Rev: 1, Limit: limit,
			}},
		}},
		Tenants: []tenants.Tenant{{
			ID: "bench", Slug: "bench", Number: 1, Home: "h1", PlanID: "plan", PlanRevision: 1,
			Document: tenants.Document{Status: tenants.Active, NoPolicy: tenants.Allow, Plan: "plan"},
		}},
		Keys: []tenants.Key{{ID: "key", TenantID: "bench", Name: "key", Hash: tenants.HashToken(token), Scopes: []tenants.Scope{tenants.ScopeCheck}}},
	}, snapshot.Options{})
	if report.Held != nil || s.ProblemCount() > 0 {
		b.Fatalf("held: %v, problems: %v", report.Held, s.Problems())
	}
	return func() *snapshot.Snapshot { return s }
}

// BenchmarkShouldRateLimit is one call without the network: its handler, and the encoding of its answer.
func BenchmarkShouldRateLimit(b *testing.B) {
	token := tenants.NewToken(tenants.TenantToken)
	current := tenantWith(b, token, enforcement.Limit{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Hour})
	engine := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{})
	server := New(Config{Logger: slog.New(slog.DiscardHandler)})
	server.Open(api.New(api.Config{Decider: engine, Headers: api.Draft11, Snapshot: current}))
	service := &rateLimits{Server: server}
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("authorization", "Bearer "+token))
	for _, n := range []int{1, 10} {
		r := &ratelimitv3.RateLimitRequest{Domain: "bench"}
		for i := range n {
			r.Descriptors = append(r.Descriptors, &descriptorv3.RateLimitDescriptor{
				Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u" + strconv.Itoa(i)}},
			})
		}
		b.Run(fmt.Sprintf("descriptors=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var encoded []byte
			for b.Loop() {
				answer, err := service.ShouldRateLimit(ctx, r)
				if err != nil || answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OK || answer.GetStatuses()[0].GetCurrentLimit() == nil {
					b.Fatal(answer, err)
				}
				if encoded, err = (proto.MarshalOptions{}).MarshalAppend(encoded[:0], answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCalls makes calls over the network: 64 callers on 4 connections, with the client in the same process. The baseline is the
// server of grpc-go with the same handler.
func BenchmarkCalls(b *testing.B) {
	token := tenants.NewToken(tenants.TenantToken)
	current := tenantWith(b, token, enforcement.Limit{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Hour})
	engine := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{})
	server := New(Config{Logger: slog.New(slog.DiscardHandler)})
	server.Open(api.New(api.Config{Decider: engine, Headers: api.Draft11, Snapshot: current}))
	encoded, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Domain: "bench", Descriptors: []*descriptorv3.RateLimitDescriptor{{
		Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u1"}},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range []struct {
		name  string
		serve func(net.Listener) error
	}{
		{"http2", func(l net.Listener) error { return server.Serve(connlimit.Wrap(l, connlimit.Limits{Total: 10}, nil)) }},
		{"grpc-go", server.grpc.Serve},
	} {
		b.Run(s.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go s.serve(l) //nolint:errcheck // ends with the benchmark
			defer l.Close()
			var left atomic.Int64
			left.Store(int64(b.N))
			var callers sync.WaitGroup
			for range 4 {
				conn, err := load.OpenGRPC(b.Context(), l.Addr().String(), ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, token)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				for range 16 {
					caller := conn.Caller()
					callers.Go(func() {
						message := load.GRPCMessage(encoded)
						for left.Add(-1) >= 0 {
							if _, err := caller.Call(message); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
			}
			callers.Wait()
		})
	}
}
