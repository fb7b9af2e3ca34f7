package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/connlimit"
	"github.com/headgate/headgate/internal/problem"
)

// Config of a Server. All fields without a stated default are required.
type Config struct {
	// Domains has the tenant of each domain that is not named like its tenant. Default: none.
	Domains Domains
	// Key is the API key for calls that have none. Default: none, so that such calls fail.
	Key string
	// TLS, if it is not nil, encrypts the connections.
	TLS *tls.Config
	// Logger logs panics, and domains without a tenant.
	Logger *slog.Logger
}

// Limits of a connection.
const (
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 2 * time.Minute // time after which a connection without calls is closed
	pingAfter        = time.Minute     // time without data after which the client is pinged, to detect a lost connection
	// messageTimeout is the maximum time of a call that is no stream, from its headers to its answer. Parts of
	// messages take memory until then.
	messageTimeout = 10 * time.Second
	maxMessage     = 1 << 20 // maximum size of a message in bytes; ext_authz can send bodies of requests
	maxStreams     = 1000    // maximum number of open calls on one connection
)

// A Server serves the gRPC calls on the connections of one listener.
type Server struct {
	cfg    Config
	api    atomic.Pointer[api.API] // nil before Open
	grpc   *grpc.Server
	health *health.Server
	ending chan struct{} // closed by Shutdown
	within time.Duration // messageTimeout, or a shorter time in tests
	end    sync.Once
}

// New returns a Server that does not listen yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, health: health.NewServer(), ending: make(chan struct{}), within: messageTimeout}
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(s.recovered),
		grpc.StreamInterceptor(s.recoveredStream),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: pingAfter, Timeout: handshakeTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InTapHandle(s.bound),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	ratelimitv3.RegisterRateLimitServiceServer(s.grpc, &rateLimits{Server: s})
	quotav3.RegisterRateLimitQuotaServiceServer(s.grpc, newQuotas(s))
	authv3.RegisterAuthorizationServer(s.grpc, &authorization{Server: s})
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	return s
}

// Open makes a decide all further checks. Until Open is called, calls fail with UNAVAILABLE.
func (s *Server) Open(a *api.API) {
	s.api.Store(a)
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
}

// Serve accepts connections until Shutdown or an error of the listener. After Shutdown it returns nil.
func (s *Server) Serve(l *connlimit.Listener) error {
	if err := s.grpc.Serve(admitted{l}); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("accept a gRPC connection: %w", err)
	}
	return nil
}

// admitted is a listener that closes connections above the limit for clients. The rest of the
// connections is reserved for health checks and metrics.
type admitted struct{ *connlimit.Listener }

func (l admitted) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if limited, ok := c.(*connlimit.Conn); !ok || !limited.Reserved() {
			return c, nil
		}
		_ = c.Close()
	}
}

// Shutdown reports to health checks that the server ends, stops accepting connections, and waits until the calls under
// way are answered. It ends the streams of quota. If ctx ends before that, Shutdown closes the connections and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.end.Do(func() { close(s.ending) })
	done := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return ctx.Err()
	}
}

// recovered returns the status INTERNAL after a panic. The panic ends only this call.
func (s *Server) recovered(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			answer, err = nil, s.panicked(cause, info.FullMethod)
		}
	}()
	return next(ctx, request)
}

// bound limits the time of a call that is no stream to s.within. grpc-go calls it when the headers of a call have
// arrived, before the message. So a client cannot keep a call open by sending only a part of its message.
func (s *Server) bound(ctx context.Context, info *tap.Info) (context.Context, error) {
	switch info.FullMethodName {
	case ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, authv3.Authorization_Check_FullMethodName:
		ctx, cancel := context.WithTimeout(ctx, s.within)
		context.AfterFunc(ctx, cancel) // ctx ends when the call ends
		return ctx, nil
	}
	return ctx, nil
}

// recoveredStream does for streams what recovered does for single calls.
func (s *Server) recoveredStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = s.panicked(cause, info.FullMethod)
		}
	}()
	return next(service, stream)
}

// panicked logs a panic and returns the error with which the call ends. It does not log http.ErrAbortHandler: with
// this value, the API ends a call whose client has gone.
func (s *Server) panicked(cause any, method string) error {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return status.Error(codes.Canceled, "the client has ended the call")
	}
	s.cfg.Logger.Error("panic in a gRPC call", "method", method, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// caller returns the API, and the caller with the API key in the metadata authorization.
// Without this metadata, the key is Config.Key.
func (s *Server) caller(ctx context.Context) (*api.API, api.Caller, error) {
	decider := s.api.Load()
	if decider == nil {
		return nil, api.Caller{}, status.Error(codes.Unavailable, "the node is starting: it waits for its database")
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 && s.cfg.Key != "" {
		values = []string{"Bearer " + s.cfg.Key}
	}
	if len(values) != 1 {
		return nil, api.Caller{}, status.Error(codes.Unauthenticated,
			"authorization: send it once, as initial_metadata of the grpc_service: Bearer and an API key")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, api.Caller{}, status.Error(codes.Unauthenticated, "authorization: must be Bearer and an API key with the scope check")
	}
	var from netip.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = api.IPOf(p.Addr)
	}
	who, err := decider.CallerOf(token, from)
	if err != nil {
		return nil, api.Caller{}, statusOf(err, "")
	}
	return decider, who, nil
}

// statusOf converts an error of the API to a gRPC status. at names the part of the request that
// has the fault.
func statusOf(err error, at string) error {
	p := api.Problem(err)
	text := p.Message
	for _, f := range p.Fields {
		text += "; " + strings.TrimPrefix(f.Pointer, "/") + " " + f.Message
	}
	if at != "" {
		text = at + ": " + text
	}
	code := codes.Internal
	switch p.Kind {
	case problem.Malformed, problem.Invalid:
		code = codes.InvalidArgument
	case problem.Unauthenticated:
		code = codes.Unauthenticated
	case problem.Forbidden:
		code = codes.PermissionDenied
	case problem.NotFound:
		code = codes.NotFound
	case problem.Unavailable:
		code = codes.Unavailable
	}
	return status.Error(code, text)
}
