package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/load"
)

// The load of the group grpc. Each caller makes its next call after it has received the response to
// the previous call. The callers share a few connections, as the worker threads of Envoy do.
const (
	grpcCallers     = 64
	grpcConnections = 4
)

// descriptorCounts contains the numbers of descriptors per call that the group grpc measures.
var descriptorCounts = []int{1, 10}

const envoyGRPC = "envoyproxy/ratelimit gRPC"

// grpcContenders contains the services that implement Envoy's rate limit service. name is the name
// of the service in the group grpc.
var grpcContenders = []struct{ name, service string }{{embedded, embedded}, {exactTCP, exactTCP}, {envoyGRPC, envoy}}

// measureGRPC measures the highest rate at which each service answers calls of ShouldRateLimit.
func (b *bench) measureGRPC(ctx context.Context) error {
	b.results.grpc = map[int]map[string]series{}
	// The client uses one thread, as in the group http.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, descriptors := range descriptorCounts {
		message, err := newMessage(descriptors)
		if err != nil {
			return err
		}
		var contenders []contender
		for _, c := range grpcContenders {
			s := b.service(c.service)
			contenders = append(contenders, contender{c.name, func(ctx context.Context) (slot, error) {
				return b.measure(ctx, s, func(ctx context.Context) (*load.Result, error) {
					return callGRPC(ctx, s, message, time.Duration(b.seconds*float64(time.Second)))
				})
			}})
		}
		found, err := b.rotate(ctx, fmt.Sprintf("gRPC, %d descriptors", descriptors), contenders)
		if err != nil {
			return err
		}
		b.results.grpc[descriptors] = found
	}
	return nil
}

// A message is an encoded RateLimitRequest. places holds the positions of the placeholders in text.
type message struct {
	text   []byte
	places []int
}

// newMessage returns an encoded request with a number of descriptors. Each descriptor has one
// entry with the key "user", whose value is a placeholder. fill replaces each placeholder with
// a random user.
func newMessage(descriptors int) (*message, error) {
	request := &ratelimitv3.RateLimitRequest{Domain: "bench"}
	for range descriptors {
		request.Descriptors = append(request.Descriptors, &descriptorv3.RateLimitDescriptor{
			Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u" + load.KeyPlace}},
		})
	}
	text, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	text = load.GRPCMessage(text)
	m := &message{text: text}
	for from := 0; ; {
		at := bytes.Index(text[from:], []byte(load.KeyPlace))
		if at < 0 {
			return m, nil
		}
		m.places = append(m.places, from+at)
		from += at + len(load.KeyPlace)
	}
}

// fill replaces the placeholders in text by random users. text must be a copy of m.text.
func (m *message) fill(text []byte, random *rand.Rand) {
	for _, at := range m.places {
		user := random.IntN(users)
		for i := at + len(load.KeyPlace) - 1; i >= at; i-- {
			text[i] = byte('0' + user%10)
			user /= 10
		}
	}
}

// A grpcAnswer holds those members of a RateLimitResponse that the client reads.
type grpcAnswer struct {
	code     ratelimitv3.RateLimitResponse_Code
	statuses int
}

// readAnswer reads an encoded RateLimitResponse.
func readAnswer(b []byte) (a grpcAnswer, err error) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return a, protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(field, kind, b)
		if size < 0 {
			return a, protowire.ParseError(size)
		}
		switch field {
		case 1: // overall_code
			code, _ := protowire.ConsumeVarint(b)
			a.code = ratelimitv3.RateLimitResponse_Code(code) //nolint:gosec // an enum
		case 2: // statuses
			a.statuses++
		}
		b = b[size:]
	}
	return a, nil
}

// dialGRPC opens connections of grpc-go to a gRPC service.
func dialGRPC(address string, n int) (conns []*grpc.ClientConn, err error) {
	for range n {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// authorized returns a context for calls with the API key of the service s.
func (s *service) authorized(ctx context.Context) context.Context {
	if s.key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.key)
}

// callGRPC calls a service for the given duration, and then waits for the last responses. The
// result counts calls, not descriptors. A call counts as allowed if all its descriptors are
// allowed.
func callGRPC(ctx context.Context, s *service, m *message, duration time.Duration) (*load.Result, error) {
	var conns []*load.GRPC
	for range grpcConnections {
		conn, err := load.OpenGRPC(ctx, s.grpc, ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, s.key)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	var opened atomic.Int64
	return load.Run(ctx, load.Config{
		Connections: grpcCallers, Duration: duration,
		Open: func(context.Context) (load.Caller, error) {
			return &grpcCaller{
				caller: conns[int(opened.Add(1))%len(conns)].Caller(), message: m, text: bytes.Clone(m.text),
				random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
			}, nil
		},
	})
}

// A grpcCaller is a caller of ShouldRateLimit.
type grpcCaller struct {
	caller  *load.GRPCCaller
	message *message
	text    []byte
	random  *rand.Rand
}

func (c *grpcCaller) Close() {}

func (c *grpcCaller) Call(context.Context) (counts load.Counts, err error) {
	c.message.fill(c.text, c.random)
	response, err := c.caller.Call(c.text)
	if err != nil {
		return counts, err
	}
	answer, err := readAnswer(response)
	switch {
	case err != nil:
	case answer.statuses != len(c.message.places):
		counts.Failed = 1
	case answer.code == ratelimitv3.RateLimitResponse_OK:
		counts.Allowed = 1
	default:
		counts.Denied = 1
	}
	return counts, err
}

// writeGRPC writes the tables of the group grpc.
func (r *results) writeGRPC(b *strings.Builder) {
	for _, descriptors := range descriptorCounts {
		all := r.grpc[descriptors]
		fmt.Fprintf(b, "\nDescriptors in a call: %d\n\n", descriptors)
		head(b, slices.Concat([]string{"calls/s", "× envoy", latencies}, times, []string{"allocations", "not allowed"})...)
		for _, c := range grpcContenders {
			s := all[c.name]
			row(b, slices.Concat([]string{
				c.name, number(s.median(perSecond)), number(pair(all, perSecond, c.name, envoyGRPC, ratio)), s.latencies(),
			}, s.times(), []string{number(s.median(allocations)), percent(s)})...)
		}
	}
}
