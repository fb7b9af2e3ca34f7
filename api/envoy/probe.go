package envoy

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Probe returns an error if no program serves Envoy's rate limits at addr. The error says what answers
// there instead. Probe needs no API key, and its request charges nothing. config is nil for a connection
// without TLS. A server that requires a client certificate is not examined further.
func Probe(ctx context.Context, addr string, config *tls.Config) error {
	secure := insecure.NewCredentials()
	if config != nil {
		secure = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(secure), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer conn.Close()
	// Without a domain, the request is invalid on every server.
	_, err = ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{}, grpc.WaitForReady(false))
	switch answer := status.Convert(err); answer.Code() {
	case codes.Unimplemented:
		return fmt.Errorf("%s does not serve Envoy's rate limits", addr)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unknown, codes.Internal:
		if strings.Contains(answer.Message(), "certificate required") {
			return nil
		}
		return fmt.Errorf("%s does not answer as a gRPC server: %s", addr, answer.Message())
	}
	return nil
}
