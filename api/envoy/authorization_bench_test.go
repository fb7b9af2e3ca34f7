package envoy

import (
	"log/slog"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/tenants"
)

// BenchmarkAuthorizationCheck is one call of ext_authz without the network: its handler, and the encoding of its
// answer.
func BenchmarkAuthorizationCheck(b *testing.B) {
	token := tenants.NewToken(tenants.TenantToken)
	current := tenantWith(b, token, enforcement.Limit{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Hour})
	engine := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{})
	server := New(Config{Logger: slog.New(slog.DiscardHandler)})
	server.Open(api.New(api.Config{Decider: engine, Headers: api.Draft11, Snapshot: current}))
	service := &authorization{Server: server}
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("authorization", "Bearer "+token))
	r := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "203.0.113.9", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 40000},
		}}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: "GET", Path: "/v1/items", Host: "api.example.com",
			Headers: map[string]string{"x-user": "u1", "user-agent": "bench", "accept": "*/*", ":method": "GET", ":path": "/v1/items"},
		}},
		ContextExtensions: map[string]string{"attributes": "user:header:x-user"},
	}}
	b.ReportAllocs()
	var encoded []byte
	for b.Loop() {
		answer, err := service.Check(ctx, r)
		if err != nil || answer.GetOkResponse() == nil || len(answer.ProtoReflect().GetUnknown()) == 0 {
			b.Fatal(answer, err)
		}
		if encoded, err = (proto.MarshalOptions{}).MarshalAppend(encoded[:0], answer); err != nil {
			b.Fatal(err)
		}
	}
}
