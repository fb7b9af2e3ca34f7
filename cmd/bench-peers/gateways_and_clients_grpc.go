package main

import (
	"context"
	"errors"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate/internal/load"
)

// An envoyCaller makes the same gRPC call again and again. The callers share a few connections, as
// the worker threads of Envoy do.
type envoyCaller struct {
	service *service
	conn    *grpc.ClientConn
	call    func(ctx context.Context, conn *grpc.ClientConn) (allowed bool, err error)
}

func (c *envoyCaller) Close() {}

func (c *envoyCaller) Call(ctx context.Context) (counts load.Counts, err error) {
	allowed, err := c.call(c.service.authorized(ctx), c.conn)
	switch {
	case err != nil:
	case allowed:
		counts.Allowed = 1
	default:
		counts.Denied = 1
	}
	return counts, err
}

// callEnvoy returns the load of calls to a gRPC service of Envoy. The connections stay open until
// the command ends.
func callEnvoy(s *service, call func(context.Context, *grpc.ClientConn) (bool, error)) load.Config {
	conns, err := dialGRPC(s.grpc, grpcConnections)
	var opened atomic.Int64
	return load.Config{Open: func(context.Context) (load.Caller, error) {
		if err != nil {
			return nil, err
		}
		return &envoyCaller{s, conns[int(opened.Add(1))%len(conns)], call}, nil
	}}
}

func callAuthorization(s *service, _ int) load.Config {
	request := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: wayAddress},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/api/things/42", Host: "api.example.com"}},
	}}
	return callEnvoy(s, func(ctx context.Context, conn *grpc.ClientConn) (bool, error) {
		answer, err := authv3.NewAuthorizationClient(conn).Check(ctx, request)
		return answer.GetStatus().GetCode() == int32(codes.OK), err
	})
}

func callRateLimit(s *service, _ int) load.Config {
	entries := []*descriptorv3.RateLimitDescriptor_Entry{
		{Key: ":path", Value: "/api/things/42"}, {Key: ":method", Value: "GET"}, {Key: "remote_address", Value: wayAddress},
	}
	request := &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: []*descriptorv3.RateLimitDescriptor{{Entries: entries}}}
	return callEnvoy(s, func(ctx context.Context, conn *grpc.ClientConn) (bool, error) {
		answer, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request)
		if err == nil && len(answer.GetStatuses()) == 0 {
			err = errors.New("the answer has no status")
		}
		return answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OK, err
	})
}
