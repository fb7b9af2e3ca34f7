//go:build !quick

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/enforcement"
)

// A wirePlayer sends checks in order, with the key of a tenant, and returns what the wire says of the decisions.
type wirePlayer func(t *testing.T, n wireNode, key string, script []wireCheck) []wireAnswer

// A wireWay is one protocol with which the test sends checks. row is its row in the tables of
// docs/gateways.md.
type wireWay struct {
	name, row string
	wire      enforcement.Wire
	play      wirePlayer
}

var wireWays = []wireWay{
	{"POST /v1/check", "`POST /v1/check`", enforcement.WireCheck, checkWay},
	{"POST /v1/check/batch", "`POST /v1/check/batch`", enforcement.WireBatch, batchWay},
	{"forward-auth, forwarded", "`/v1/forward-auth`", enforcement.WireForwardAuth, forwardAuthWay("forwarded", "X-Forwarded-Method", "X-Forwarded-Uri")},
	{"forward-auth, original", "`/v1/forward-auth`", enforcement.WireForwardAuth, forwardAuthWay("original", "X-Original-Method", "X-Original-Uri")},
	{"forward-auth, kong", "`/v1/forward-auth`", enforcement.WireForwardAuth, forwardAuthWay("kong", "X-Forwarded-Method", "X-Forwarded-Path")},
	{"forward-auth, path", "`/v1/forward-auth/…`", enforcement.WireForwardAuth, forwardAuthPathWay},
	{"ext_authz", "Envoy `ext_authz`", enforcement.WireEnvoyAuthorization, authorizationWay},
	{"ratelimit", "Envoy `ratelimit`", enforcement.WireEnvoyRateLimit, rateLimitWay},
	{"rate_limit_quota", "Envoy `rate_limit_quota`", enforcement.WireEnvoyQuota, quotaWay},
	{"HEADGATE.CHECK", "`HEADGATE.CHECK`", enforcement.WireRESP, respWay},
	{"CL.THROTTLE", "`CL.THROTTLE`", enforcement.WireRESP, throttleWay},
}

// ofHTTP reads the answer from the body and the headers of an HTTP answer.
func ofHTTP(t *testing.T, a answer) wireAnswer {
	t.Helper()
	got := answerOf(t, a.body)
	got.Headers = map[string]string{}
	for name := range a.header {
		got.Headers[http.CanonicalHeaderKey(name)] = a.header.Get(name)
	}
	if got.Allowed != (a.status == http.StatusOK) {
		t.Errorf("allowed is %t with the status %d", got.Allowed, a.status)
	}
	return got
}

func checkWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	for _, c := range script {
		var header []string
		if c.once != "" {
			header = []string{"Idempotency-Key", c.once}
		}
		answers = append(answers, ofHTTP(t, call(t, key, "POST", n.origin+"/v1/check", c.json(), header...)))
	}
	return answers
}

func batchWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	for len(script) > 0 {
		size := 1
		for size < min(len(script), 20) && script[size].once == script[0].once && script[0].once == "" {
			size++
		}
		var bodies, header []string
		for _, c := range script[:size] {
			bodies = append(bodies, c.json())
		}
		if script[0].once != "" { // a key is that of the whole batch
			header = []string{"Idempotency-Key", script[0].once}
		}
		script = script[size:]
		var batch struct{ Results []json.RawMessage }
		call(t, key, "POST", n.origin+"/v1/check/batch", `{"checks": [`+strings.Join(bodies, ",")+`]}`, header...).want(t, 200).into(t, &batch)
		for _, one := range batch.Results {
			answers = append(answers, answerOf(t, string(one)))
		}
	}
	return answers
}

// attributeHeaders returns the attributes as headers, and the option attributes that reads them.
func (c wireCheck) attributeHeaders() (pairs []string, option string) {
	pairs = c.attributes()
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "x-" + pairs[i]
	}
	return pairs, "user:header:x-user,tokens:header:x-tokens,key:header:x-key"
}

func forwardAuthWay(form, methodHeader, pathHeader string) wirePlayer {
	return func(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
		for _, c := range script {
			header, attributes := c.attributeHeaders()
			header = append(header, methodHeader, c.method, pathHeader, c.path, "X-Forwarded-For", c.ip)
			query := "headers=" + form + "&attributes=" + attributes
			if c.cost >= 0 {
				header, query = append(header, "X-Cost", strconv.Itoa(c.cost)), query+"&cost=header:X-Cost"
			}
			for name, value := range c.options() {
				if from, named := strings.CutPrefix(value, "header:"); named {
					header = append(header, from, c.headerValue(name))
				}
				query += "&" + name + "=" + value
			}
			answers = append(answers, ofHTTP(t, call(t, key, "GET", n.origin+"/v1/forward-auth?"+query, "", header...)))
		}
		return answers
	}
}

// options returns the options of forward-auth that protect the check from a second charge, or let it
// be changed.
func (c wireCheck) options() map[string]string {
	options := map[string]string{}
	if c.once != "" {
		options["idempotency"] = "header:x-once"
	}
	if c.lease != "" {
		options["lease"], options["lease_ttl_ms"] = "header:x-lease", strconv.FormatInt(leaseTTL.Milliseconds(), 10)
	}
	if c.refundable {
		options["refundable"] = "true"
	}
	return options
}

// headerValue returns the value of the header that an option names.
func (c wireCheck) headerValue(option string) string {
	if option == "lease" {
		return c.lease
	}
	return c.once
}

// forwardAuthPathWay is the HTTP service of ext_authz.
func forwardAuthPathWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	for _, c := range script {
		answers = append(answers, ofHTTP(t, call(t, key, c.method, n.origin+"/v1/forward-auth"+c.path, "", "X-Forwarded-For", c.ip)))
	}
	return answers
}

func authorizationWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	service := authv3.NewAuthorizationClient(n.envoy)
	for _, c := range script {
		header, attributes := c.attributeHeaders()
		extensions := c.options()
		for name, value := range extensions {
			if from, named := strings.CutPrefix(value, "header:"); named {
				header = append(header, from, c.headerValue(name))
			}
		}
		r := httpRequest(c.method, c.path, header...)
		r.Attributes.Source.Address.GetSocketAddress().Address = c.ip
		if c.cost >= 0 {
			extensions["cost"] = strconv.Itoa(c.cost)
		}
		r.Attributes.ContextExtensions = extensions
		a, err := service.Check(with(t.Context(), key, "headgate-attributes", attributes), r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := a.GetDynamicMetadata().MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		got, headers := answerOf(t, string(body)), a.GetOkResponse().GetResponseHeadersToAdd()
		if denied := a.GetDeniedResponse(); denied != nil {
			headers = denied.GetHeaders()
			if again := answerOf(t, denied.GetBody()); again.ID != got.ID {
				t.Errorf("the body is of the decision %s, the metadata of %s", again.ID, got.ID)
			}
		}
		if got.Allowed != (a.GetStatus().GetCode() == 0) || got.Allowed != (a.GetDeniedResponse() == nil) {
			t.Errorf("%+v: %v", c, a)
		}
		got.Headers = map[string]string{}
		for _, h := range headers {
			got.Headers[http.CanonicalHeaderKey(h.GetHeader().GetKey())] = h.GetHeader().GetValue()
		}
		answers = append(answers, got)
	}
	return answers
}

// descriptor returns the check as a descriptor.
func (c wireCheck) descriptor() *descriptorv3.RateLimitDescriptor {
	pairs := append([]string{":method", c.method, ":path", c.path}, c.attributes()...)
	if c.ip != "" {
		pairs = append(pairs, "remote_address", c.ip)
	}
	d := entries(pairs...)
	if c.cost >= 0 {
		d.HitsAddend = wrapperspb.UInt64(uint64(c.cost))
	}
	return d
}

func rateLimitWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	service := ratelimitv3.NewRateLimitServiceClient(n.envoy)
	for _, c := range script {
		d := c.descriptor()
		add := func(key, value string) {
			d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		if c.once != "" {
			add(":idempotency-key", c.once)
		}
		if c.lease != "" {
			add(":lease", c.lease)
			add(":lease-ttl-ms", strconv.FormatInt(leaseTTL.Milliseconds(), 10))
		}
		if c.refundable {
			add(":refundable", "true")
		}
		a, err := service.ShouldRateLimit(with(t.Context(), key), &ratelimitv3.RateLimitRequest{
			Domain: "edge", Descriptors: []*descriptorv3.RateLimitDescriptor{d},
		})
		if err != nil {
			t.Fatal(err)
		}
		s, fields := a.GetStatuses()[0], a.GetDynamicMetadata().GetFields()
		if s.GetCode() != a.GetOverallCode() {
			t.Errorf("%+v: %v", c, a)
		}
		got := wireAnswer{
			Allowed: s.GetCode() == ratelimitv3.RateLimitResponse_OK, Reason: fields["reason"].GetStringValue(),
			Degraded: fmt.Sprint(fields["degraded"].AsInterface()), ID: fields["decision_ids"].GetListValue().GetValues()[0].GetStringValue(),
			Delay: int64(fields["delay_ms"].GetNumberValue()), Near: int64(fields["near_limit"].GetNumberValue()), Serve: fields["serve"].GetStringValue(), Headers: map[string]string{},
			Replayed: fields["replayed"].GetBoolValue(), Lease: fields["lease"].GetStringValue(), Refundable: fields["refundable_until"].GetStringValue() != "",
		}
		for name, value := range headersOf(a.GetResponseHeadersToAdd()) {
			got.Headers[http.CanonicalHeaderKey(name)] = value
		}
		if !got.Allowed {
			got.Retry = answerOf(t, string(a.GetRawBody())).Retry
		}
		if l := s.GetCurrentLimit(); l != nil {
			got.Limits = []wireLimit{{
				Policy: l.GetName(), Quota: int64(l.GetRequestsPerUnit()), Remaining: int64(s.GetLimitRemaining()),
				Reset: s.GetDurationUntilReset().AsDuration().Milliseconds(),
			}}
		}
		answers = append(answers, got)
	}
	return answers
}

func respWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	pipe := respClient(t, n.resp, key, 3).Pipeline()
	for _, c := range script {
		args := []any{"HEADGATE.CHECK", "-", c.path, "METHOD", c.method, "NEAR_LIMIT", 1}
		if c.ip != "" {
			args = append(args, "ip", c.ip)
		}
		if c.cost >= 0 {
			args = append(args, "COST", c.cost)
		}
		if c.mode != "" {
			args = append(args, "MODE", c.mode)
		}
		if c.once != "" {
			args = append(args, "IDEMPOTENCY", c.once)
		}
		if c.lease != "" {
			args = append(args, "LEASE", c.lease, "TTL", leaseTTL.Milliseconds())
		}
		if c.refundable {
			args = append(args, "REFUNDABLE", 1)
		}
		for _, text := range c.attributes() {
			args = append(args, text)
		}
		pipe.Do(t.Context(), args...)
	}
	for i, got := range slicesOf(t, pipe) {
		c := script[i]
		if len(got) != 17 {
			t.Fatalf("%+v: %v", c, got)
		}
		a := wireAnswer{
			Allowed: got[0] == int64(1), Reason: got[5].(string), Retry: got[3].(int64), Delay: got[9].(int64), Degraded: strconv.FormatBool(got[8] == int64(1)), ID: got[7].(string),
		}
		if got[10] == int64(1) {
			a.Serve = "cheap"
		}
		if got[6] != "" {
			a.Limits = []wireLimit{{Policy: got[6].(string), Quota: got[1].(int64), Remaining: got[2].(int64), Reset: got[4].(int64)}}
		} else if got[1] != int64(-1) || got[2] != int64(-1) || got[4] != int64(-1) {
			t.Errorf("no limit decided: %v", got)
		}
		a.Taken, a.Replayed, a.Lease, a.Refundable = got[11].(int64), got[12] == int64(1), got[13].(string), got[15].(int64) > time.Now().UnixMilli()
		a.Near = got[16].(int64)
		if c.mode != "take_up_to" {
			if a.Taken != -1 {
				t.Errorf("taken without take_up_to: %v", got)
			}
			a.Taken = 0
		}
		if ttl := got[14]; c.lease != "" && a.Lease != "" && ttl != leaseTTL.Milliseconds() {
			t.Errorf("the lease lives for %v ms", ttl)
		}
		answers = append(answers, a)
	}
	return answers
}

func throttleWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	pipe := respClient(t, n.resp, key, 2).Pipeline()
	for _, c := range script {
		args := []any{"CL.THROTTLE", c.key, 15, 30, 60}
		if c.cost >= 0 {
			args = append(args, c.cost)
		}
		pipe.Do(t.Context(), args...)
	}
	for _, got := range slicesOf(t, pipe) {
		if len(got) != 5 {
			t.Fatal(got)
		}
		a := wireAnswer{Allowed: got[0] == int64(0), Retry: got[3].(int64) * 1000, Delay: unsaid}
		if a.Allowed {
			a.Retry = 0
		} else if got[3] == int64(-1) {
			a.Retry = -1
		}
		if got[1] != int64(0) { // 0: no limit decided
			a.Limits = []wireLimit{{Quota: got[1].(int64), Remaining: got[2].(int64), Reset: got[4].(int64) * 1000}}
		}
		answers = append(answers, a)
	}
	return answers
}

// slicesOf runs a pipeline whose replies are arrays.
func slicesOf(t *testing.T, pipe redis.Pipeliner) (all [][]any) {
	t.Helper()
	replies, err := pipe.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range replies {
		got, err := reply.(*redis.Cmd).Slice()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
	return all
}

// quotaWay plays the script as an Envoy that denies requests without an assignment. Its assignments are one request,
// so that no request is charged before it is sent. Each cost has a stream.
func quotaWay(t *testing.T, n wireNode, key string, script []wireCheck) (answers []wireAnswer) {
	t.Helper()
	service := quotav3.NewRateLimitQuotaServiceClient(n.envoy)
	streams := map[int]quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient{}
	used := map[string]uint64{}      // allowed requests of a bucket that are not reported
	unlimited := map[string]func(){} // by the bucket; reports its requests
	for _, c := range script {
		stream := streams[c.cost]
		if stream == nil {
			ctx := with(t.Context(), key, "headgate-assignment", "1")
			if c.cost >= 0 {
				ctx = metadata.AppendToOutgoingContext(ctx, "headgate-cost", strconv.Itoa(c.cost))
			}
			var err error
			if stream, err = service.StreamRateLimitQuotas(ctx); err != nil {
				t.Fatal(err)
			}
			streams[c.cost] = stream
		}
		id := &quotav3.BucketId{Bucket: map[string]string{":method": c.method, ":path": c.path, "remote_address": c.ip}}
		for pair := range slices.Chunk(c.attributes(), 2) {
			id.Bucket[pair[0]] = pair[1]
		}
		bucket := fmt.Sprint(c.cost, id.Bucket)
		if unlimited[bucket] != nil {
			used[bucket]++
			answers = append(answers, wireAnswer{Allowed: true, Retry: unsaid, Delay: unsaid})
			continue
		}
		if err := stream.Send(&quotav3.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: id, NumRequestsAllowed: used[bucket], NumRequestsDenied: 1},
		}}); err != nil {
			t.Fatal(err)
		}
		used[bucket] = 0
		response, err := stream.Recv()
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		strategy := strategyOf(t, response)
		tokens, blanket := strategy.GetTokenBucket(), strategy.GetBlanketRule()
		assigned := response.GetBucketAction()[0].GetQuotaAssignmentAction()
		allowed := tokens.GetMaxTokens() == 1 || tokens == nil && blanket == typev3.RateLimitStrategy_ALLOW_ALL
		if ttl := assigned.GetAssignmentTimeToLive().AsDuration(); ttl < time.Second || ttl > 20*time.Second || tokens.GetMaxTokens() > 1 {
			t.Fatalf("%+v: %v", c, response)
		}
		if allowed {
			used[bucket] = 1
		}
		if allowed && tokens == nil {
			unlimited[bucket] = func() {
				_ = stream.Send(&quotav3.RateLimitQuotaUsageReports{BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
					{BucketId: id, NumRequestsAllowed: used[bucket]},
				}})
			}
		}
		answers = append(answers, wireAnswer{Allowed: allowed, Retry: unsaid, Delay: unsaid})
	}
	for _, report := range unlimited {
		report()
	}
	for _, stream := range streams {
		_ = stream.CloseSend()
		if a, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v, %v", a, err)
		}
	}
	return answers
}
