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
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/connlimit"
	"github.com/headgate/headgate/internal/http2"
	"github.com/headgate/headgate/internal/problem"
)

// Config holds the settings of a Server. All fields without a stated default are required.
type Config struct {
	// Domains holds the tenancy of each domain that does not have the name of its tenant. Default:
	// none.
	Domains Domains
	// Key is the API key that is used for calls without a key. Default: none; such calls then fail.
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
	// messageTimeout is the maximum time of a unary call, from its headers to its response. It bounds how long a partly
	// received message occupies memory.
	messageTimeout = 10 * time.Second
	maxMessage     = 1 << 20  // maximum size of a message in bytes; a message of ext_authz can contain the body of a request
	maxParts       = 64 << 20 // maximum size in bytes of all partly received messages together
	maxStreams     = 1000     // maximum number of open calls on one connection
)

// A Server serves the gRPC calls on the connections of one listener. Package http2 serves the checks. grpc-go serves the quota streams,
// the health checks and the reflection service.
type Server struct {
	cfg    Config
	api    atomic.Pointer[api.API] // nil before Open
	grpc   *grpc.Server
	http2  *http2.Server
	health *health.Server
	ending chan struct{} // closed by Shutdown
	end    sync.Once
}

// New returns a Server that does not listen yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, health: health.NewServer(), ending: make(chan struct{})}
	s.grpc = grpc.NewServer(
		grpc.UnaryInterceptor(s.recovered), grpc.StreamInterceptor(s.recoveredStream), grpc.MaxRecvMsgSize(maxMessage),
		grpc.ForceServerCodecV2(newCodec()),
	)
	limits, authorizer := &rateLimits{Server: s}, &authorization{Server: s}
	ratelimitv3.RegisterRateLimitServiceServer(s.grpc, limits)
	quotav3.RegisterRateLimitQuotaServiceServer(s.grpc, newQuotas(s))
	authv3.RegisterAuthorizationServer(s.grpc, authorizer)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	s.http2 = &http2.Server{
		Handler: s.grpc, TLS: cfg.TLS, Logger: cfg.Logger,
		Streams: []string{
			quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName,
			reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName,
			reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName,
		},
		Known: func(c *http2.Call) bool {
			_, _, err := s.callerOf(c)
			return err == nil
		},
		Methods: []http2.Method{
			{Path: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, Together: true, Serve: limits.serve},
			{Path: authv3.Authorization_Check_FullMethodName, Serve: authorizer.serve},
		},
		Limits: http2.Limits{
			Message: maxMessage, Parts: maxParts, Streams: maxStreams, Complete: messageTimeout, Begin: handshakeTimeout,
			Stall: handshakeTimeout, Ping: pingAfter, Idle: idleTimeout,
		},
	}
	return s
}

// Open sets a as the API that decides all further checks. Until Open is called, calls fail with
// UNAVAILABLE.
func (s *Server) Open(a *api.API) {
	s.api.Store(a)
	s.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
}

// Serve accepts connections until Shutdown or an error of the listener. After Shutdown it returns nil.
func (s *Server) Serve(l *connlimit.Listener) error {
	if err := s.http2.Serve(admitted{l}); err != nil {
		return fmt.Errorf("accept a gRPC connection: %w", err)
	}
	return nil
}

// admitted is a listener that closes every connection above the limit for clients. The connections
// above this limit are reserved for health checks and metrics.
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

// Shutdown reports to health checks that the server ends, stops accepting connections, and waits until all open calls are answered. It
// ends the quota streams at once. If ctx ends first, Shutdown closes the connections and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.end.Do(func() { close(s.ending) })
	err := s.http2.Shutdown(ctx)
	s.grpc.Stop()
	return err
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

// recoveredStream returns the status INTERNAL after a panic in a stream. The panic ends only this
// stream.
func (s *Server) recoveredStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = s.panicked(cause, info.FullMethod)
		}
	}()
	return next(service, stream)
}

// panicked logs a panic and returns the error with which the call ends. It does not log http.ErrAbortHandler: the API
// panics with this value to end a call whose client has closed the connection.
func (s *Server) panicked(cause any, method string) error {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return status.Error(codes.Canceled, "the client has ended the call")
	}
	s.cfg.Logger.Error("panic in a gRPC call", "method", method, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}

// caller returns the API, and the caller whose API key is in the metadata value authorization of
// the call.
func (s *Server) caller(ctx context.Context) (*api.API, api.Caller, error) {
	values := metadata.ValueFromIncomingContext(ctx, authorizationKey)
	value := ""
	if len(values) > 0 {
		value = values[0]
	}
	var from netip.Addr
	if p, ok := peer.FromContext(ctx); ok {
		at, _ := netip.ParseAddrPort(p.Addr.String())
		from = at.Addr()
	}
	return s.holder(value, len(values), from)
}

// callerOf does the same as caller, for a call that package http2 serves.
func (s *Server) callerOf(c *http2.Call) (*api.API, api.Caller, error) {
	value, n := c.Value(authorizationKey)
	return s.holder(value, n, c.From)
}

const authorizationKey = "authorization"

// holder returns the API, and the caller whose API key is in value. n is the number of authorization values that the client sent. If it
// sent none, holder uses Config.Key.
func (s *Server) holder(value string, n int, from netip.Addr) (*api.API, api.Caller, error) {
	decider := s.api.Load()
	if decider == nil {
		return nil, api.Caller{}, status.Error(codes.Unavailable, "the node is starting: it waits for its database")
	}
	if n == 0 && s.cfg.Key != "" {
		value, n = "Bearer "+s.cfg.Key, 1
	}
	if n != 1 {
		return nil, api.Caller{}, status.Error(codes.Unauthenticated,
			"authorization: send it once, as initial_metadata of the grpc_service: Bearer and an API key")
	}
	scheme, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, api.Caller{}, status.Error(codes.Unauthenticated, "authorization: must be Bearer and an API key with the scope check")
	}
	who, err := decider.CallerOf(token, from)
	if err != nil {
		return nil, api.Caller{}, statusOf(err, "")
	}
	return decider, who, nil
}

// decode decodes the message of a call into m.
func decode(c *http2.Call, m proto.Message) error {
	if err := unmarshal(c.Message, m); err != nil {
		return status.Errorf(codes.InvalidArgument, "the message is no %s: %v", m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// answerOrFail ends a call. If err is nil, it sends the message m; otherwise it sends err, which is
// a gRPC status.
func answerOrFail(c *http2.Call, m proto.Message, err error) {
	if err != nil {
		fail(c, err)
		return
	}
	c.Answer(func(b []byte) ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(b, m) })
}

// fail ends a call with the gRPC status that err contains.
func fail(c *http2.Call, err error) {
	s := status.Convert(err)
	c.Fail(s.Code(), s.Message())
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
	case problem.Conflict:
		code = codes.AlreadyExists
	case problem.Unavailable:
		code = codes.Unavailable
	}
	return status.Error(code, text)
}
