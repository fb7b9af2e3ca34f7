//go:build !quick

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// hostileValues are values that a client of a gateway can put into a header or a query.
var hostileValues = []string{
	"", "\xff", "\xff\xfe", "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "u\xff1", "\x00", "\x01\x02", "a\nb", "a\r\nb: c", "%", "%ff", "%00", "%zz",
	"../..", "..%2f", "\u202e", "\ufeff", "é", `"`, `\`, "'", "<b>", "{}", "a,b", "a;b", "a=b", "-1", "0", "1e9", "99999999999999999999", "true",
	strings.Repeat("x", 1025), strings.Repeat("x", 9000), strings.Repeat("\xff", 9000), strings.Repeat("x", 60<<10), strings.Repeat(",", 5000),
}

// A hostileCodec sends the bytes of hostile wherever a message has the same number of bytes stand. Go's encoder does not
// send texts that are not UTF-8. Envoy does.
type hostileCodec struct {
	encoding.CodecV2
	hostile string
}

func newHostileCodec(hostile string) hostileCodec {
	return hostileCodec{encoding.GetCodecV2(encodingproto.Name), hostile}
}

// stand returns the text that the codec replaces.
func (c hostileCodec) stand() string { return strings.Repeat("\x7f", len(c.hostile)) }

func (c hostileCodec) Marshal(m any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(m)
	if err != nil || c.hostile == "" {
		return data, err
	}
	b := bytes.ReplaceAll(data.Materialize(), []byte(c.stand()), []byte(c.hostile))
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// No value of a client makes a call fail: Envoy would apply its failure mode, and the client would bypass a limit that is used up.
func TestEnvoyHostileValues(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, map[string]string{"HEADGATE_ENVOY_DOMAINS": "gateway=@customer"})
	conn := dialEnvoy(t, node.addr, insecure.NewCredentials())
	limits, authorizer := ratelimitv3.NewRateLimitServiceClient(conn), authv3.NewAuthorizationClient(conn)
	login := []string{":path", "/v1/login", ":method", "POST", "remote_address", "203.0.113.9"}
	for range 3 {
		if a, err := limits.ShouldRateLimit(with(t.Context(), bootstrap), request("acme", login...)); err != nil ||
			a.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
			t.Fatalf("%v, %v", a, err)
		}
	}
	for _, value := range hostileValues {
		codec := newHostileCodec(value)
		option, v := grpc.ForceCodecV2(codec), codec.stand()
		for name, r := range map[string]*ratelimitv3.RateLimitRequest{
			"an attribute":       request("acme", append([]string{"user", v}, login...)...),
			"the query":          request("acme", ":path", "/v1/login?"+v, ":method", "POST", "remote_address", "203.0.113.9"),
			"the tenant":         request("gateway", append([]string{"customer", v}, login...)...),
			"an idempotency key": request("acme", append([]string{":idempotency-key", v}, login...)...),
			"a lease":            request("acme", append([]string{":lease", v}, login...)...),
			"a time to live":     request("acme", append([]string{":lease-ttl-ms", v}, login...)...),
			"refundable":         request("acme", append([]string{":refundable", v}, login...)...),
			"several":            request("acme", append([]string{"a", v, "b", v, "c", v}, login...)...),
		} {
			a, err := limits.ShouldRateLimit(with(t.Context(), bootstrap), r, option)
			if err != nil || a.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || !json.Valid(a.GetRawBody()) {
				t.Errorf("ratelimit, %s %.20q: %v, %v", name, value, a, err)
			}
		}
		for name, r := range map[string]*authv3.CheckRequest{
			"a header":           httpRequest("POST", "/v1/login", "x-user-id", v),
			"the query":          httpRequest("POST", "/v1/login?"+v),
			"the host":           hostRequest(v),
			"a raw header":       rawRequest(v, "x-user-id"),
			"the body":           bodyRequest(v),
			"an idempotency key": httpRequest("POST", "/v1/login", "x-key", v),
			"the cookies":        httpRequest("POST", "/v1/login", "cookie", v),
		} {
			ctx := with(t.Context(), node.key, "headgate-attributes", "user:header:x-user-id,session:cookie:session", "headgate-idempotency", "header:x-key")
			a, err := authorizer.Check(ctx, r, option)
			if d := a.GetDeniedResponse(); err != nil || d.GetStatus().GetCode() < 400 || d.GetStatus().GetCode() > 499 || !json.Valid([]byte(d.GetBody())) {
				t.Errorf("ext_authz, %s %.20q: %v, %v", name, value, a, err)
			}
		}
	}
}

// request returns a request with one descriptor.
func request(domain string, pairs ...string) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: []*descriptorv3.RateLimitDescriptor{entries(pairs...)}}
}

func hostRequest(host string) *authv3.CheckRequest {
	r := httpRequest("POST", "/v1/login")
	r.GetAttributes().GetRequest().GetHttp().Host = host
	return r
}

func rawRequest(value, name string) *authv3.CheckRequest {
	r := httpRequest("POST", "/v1/login")
	r.GetAttributes().GetRequest().GetHttp().HeaderMap = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: name, RawValue: []byte(value)}, {Key: value, Value: value}}}
	return r
}

func bodyRequest(body string) *authv3.CheckRequest {
	r := httpRequest("POST", "/v1/login")
	r.GetAttributes().GetRequest().GetHttp().Body = body
	return r
}

// A value that is not UTF-8 is counted by its bytes, and its denial has a body.
func TestEnvoyCountsBytes(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, nil)
	service := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials()))
	ask := func(user string) *ratelimitv3.RateLimitResponse {
		t.Helper()
		codec := newHostileCodec(user)
		a, err := service.ShouldRateLimit(with(t.Context(), node.key), request("acme", ":path", "/v1/items", ":method", "GET", "user", codec.stand()), grpc.ForceCodecV2(codec))
		if err != nil {
			t.Fatalf("%q: %v", user, err)
		}
		return a
	}
	for i := range uint32(12) {
		a := ask("\xff")
		if denied := a.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT; denied != (i >= 10) || !denied && a.GetStatuses()[0].GetLimitRemaining() != 9-i {
			t.Errorf("call %d: %v", i, a)
		}
	}
	for _, other := range []string{"\xfe", "\xff\xff", "\ufffd"} {
		if a := ask(other); a.GetStatuses()[0].GetLimitRemaining() != 9 {
			t.Errorf("%q: %v", other, a)
		}
	}
}

// A cost, a tenant and an idempotency key can come from a client too. Then their errors are denials.
func TestEnvoyDeniesWhatAClientSends(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, map[string]string{"HEADGATE_ENVOY_DOMAINS": "gateway=@customer"})
	service := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials()))
	var bounded struct{ Token string }
	call(t, bootstrap, "POST", node.origin+"/v1/tenants/acme/keys", `{"name": "bounded", "scopes": ["check"], "max_cost": 5}`).want(t, 201).into(t, &bounded)
	costly := request("acme", "remote_address", "203.0.113.1")
	costly.Descriptors[0].HitsAddend = wrapperspb.UInt64(6)
	for name, c := range map[string]struct {
		key  string
		sent *ratelimitv3.RateLimitRequest
		want string
	}{
		"no tenant":      {bootstrap, request("gateway", "customer", "", "remote_address", "203.0.113.1"), "/tenant"},
		"another tenant": {bootstrap, request("gateway", "customer", "nobody", "remote_address", "203.0.113.1"), "no such tenant"},
		"a cost":         {bounded.Token, costly, "cost of at most 5"},
	} {
		a, err := service.ShouldRateLimit(with(t.Context(), c.key), c.sent)
		if err != nil || a.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || !strings.Contains(string(a.GetRawBody()), strings.TrimPrefix(c.want, "/")) {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}

// One client whose bucket has a hostile value does not take away the quota of the others.
func TestEnvoyQuotaHostileValues(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, nil)
	for _, value := range hostileValues[1:] {
		codec := newHostileCodec(value)
		stream, err := quotav3.NewRateLimitQuotaServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials())).
			StreamRateLimitQuotas(with(t.Context(), node.key), grpc.ForceCodecV2(codec))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 { // Envoy reports the bucket again
			user := fmt.Sprintf("good-%d-%d-%d", len(value), i, time.Now().UnixNano())
			report := usageOf("edge", 0, 1, ":path", "/v1/items", "user", codec.stand())
			report.BucketQuotaUsages = append(report.BucketQuotaUsages, usageOf("edge", 0, 1, ":path", "/v1/items", "user", user).GetBucketQuotaUsages()...)
			if err := stream.Send(report); err != nil {
				t.Fatalf("%.20q: %v", value, err)
			}
			a, err := stream.Recv()
			if err != nil {
				t.Fatalf("%.20q: %v", value, err)
			}
			var good, denied bool
			for _, action := range a.GetBucketAction() {
				strategy := action.GetQuotaAssignmentAction().GetRateLimitStrategy()
				good = good || action.GetBucketId().GetBucket()["user"] == user && strategy.GetTokenBucket().GetMaxTokens() > 0
				denied = denied || action.GetBucketId().GetBucket()["user"] == value && strategy.GetBlanketRule().String() == "DENY_ALL"
			}
			if !good || len(value) > 1024 && value[0] != 0xff && !denied {
				t.Errorf("%.20q: %v", value, a)
			}
		}
	}
}
