package envoy

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
)

// A response has the memory for a RateLimitResponse with its messages, so that one allocation
// suffices. It is not pooled, because grpc-go encodes it after the handler returns.
type response struct {
	ratelimitv3.RateLimitResponse
	metadata             structpb.Struct
	ids                  structpb.ListValue
	idsValue             structpb.Value
	idsKind              structpb.Value_ListValue
	tenant, plan, reason text
	degraded             structpb.Value
	degradedKind         structpb.Value_BoolValue
	delay                structpb.Value
	delayKind            structpb.Value_NumberValue
	serve                text
}

// A text has the memory for one string in the dynamic metadata.
type text struct {
	value structpb.Value
	kind  structpb.Value_StringValue
}

// of sets the string, and returns it as a protobuf value.
func (t *text) of(s string) *structpb.Value {
	t.kind.StringValue = s
	t.value.Kind = &t.kind
	return &t.value
}

// A descriptorStatus has the memory for the status of one descriptor.
type descriptorStatus struct {
	ratelimitv3.RateLimitResponse_DescriptorStatus
	limit ratelimitv3.RateLimitResponse_RateLimit
	reset durationpb.Duration
	id    text
}

var serveCheap = []string{api.ServeCheap}

// answer returns the response to a call whose descriptors are decided. Its headers and its body
// describe the descriptor with the tightest decision.
func answer(decider *api.API, c *call) *ratelimitv3.RateLimitResponse {
	r, all := new(response), make([]descriptorStatus, c.used)
	r.OverallCode = ratelimitv3.RateLimitResponse_OK
	r.Statuses = make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, c.used)
	var tightest *enforcement.Decision
	var delay int64    // the longest of the descriptors
	var serve []string // of a descriptor that is over a limit in mode degrade
	c.text = c.text[:0]
	for i, d := range c.descriptors[:c.used] {
		r.Statuses[i] = &all[i].RateLimitResponse_DescriptorStatus
		if d.unlimited {
			all[i].Code = ratelimitv3.RateLimitResponse_OK
			continue
		}
		all[i].set(&d.decision)
		if !d.decision.Allowed {
			r.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		if delay = max(delay, d.decision.Delay); d.decision.ServeCheap {
			serve = serveCheap
		}
		if tightest == nil || tighter(&d.decision, tightest) {
			tightest = &d.decision
		}
		c.text = api.AppendDecisionID(c.text, &d.decision)
	}
	if tightest == nil {
		return &r.RateLimitResponse
	}
	decider.SetAnswer(c.header, tightest, c.text)
	if tightest.Allowed {
		delete(c.header, "Content-Type")
		delete(c.header, "Cache-Control")
	} else {
		r.RawBody = decider.AppendBody(nil, tightest)
	}
	if r.OverallCode == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		delay, serve = 0, nil
		delete(c.header, api.DelayHeader)
		delete(c.header, api.ServeHeader)
	}
	if delay > 0 {
		c.header[api.DelayHeader] = []string{strconv.FormatInt(delay, 10)}
	}
	if serve != nil {
		c.header[api.ServeHeader] = serve
	}
	r.ResponseHeadersToAdd = headerValues(c.header)
	if delay > 0 || serve != nil {
		upstream, _ := softHeaders(c.header)
		r.RequestHeadersToAdd = headerValues(upstream)
	}
	r.describe(tightest, delay, c, all)
	if serve != nil {
		r.metadata.Fields["serve"] = r.serve.of(api.ServeCheap)
	}
	return &r.RateLimitResponse
}

// describe sets the dynamic metadata of the response. delay is in milliseconds. c.text has the IDs of the
// decisions.
func (r *response) describe(tightest *enforcement.Decision, delay int64, c *call, all []descriptorStatus) {
	ids := string(c.text)
	r.ids.Values = make([]*structpb.Value, 0, len(ids)/api.DecisionIDLength)
	for i, d := range c.descriptors[:c.used] {
		if !d.unlimited {
			r.ids.Values = append(r.ids.Values, all[i].id.of(ids[:api.DecisionIDLength]))
			ids = ids[api.DecisionIDLength:]
		}
	}
	r.idsKind.ListValue = &r.ids
	r.idsValue.Kind = &r.idsKind
	r.degradedKind.BoolValue = tightest.Degraded
	r.degraded.Kind = &r.degradedKind
	r.metadata.Fields = map[string]*structpb.Value{
		"tenant": r.tenant.of(tightest.Subject.Tenant), "reason": r.reason.of(string(tightest.Reason)),
		"degraded": &r.degraded, "decision_ids": &r.idsValue,
	}
	if delay > 0 {
		r.delayKind.NumberValue = float64(delay)
		r.delay.Kind = &r.delayKind
		r.metadata.Fields["delay_ms"] = &r.delay
	}
	if plan := tightest.Subject.Plan; plan != nil {
		r.metadata.Fields["plan"] = r.plan.of(plan.Slug)
	}
	r.DynamicMetadata = &r.metadata
}

// tighter reports whether decision a restricts the client more than b. A denial is tighter than
// an allowed check. Then the longer wait is tighter, and then fewer units left.
func tighter(a, b *enforcement.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case !a.Allowed && a.RetryAfter != b.RetryAfter:
		return a.RetryAfter == enforcement.Never || b.RetryAfter != enforcement.Never && a.RetryAfter > b.RetryAfter
	}
	x, y := api.Tightest(a), api.Tightest(b)
	return x != nil && (y == nil || x.Remaining < y.Remaining)
}

// set sets the status of a descriptor, with the tightest limit of its decision. If no limit
// decided, the status has none.
func (s *descriptorStatus) set(d *enforcement.Decision) {
	s.Code = ratelimitv3.RateLimitResponse_OK
	if !d.Allowed {
		s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	l := api.Tightest(d)
	if l == nil {
		return
	}
	s.LimitRemaining = uint32(min(l.Remaining, math.MaxUint32))
	s.limit.Name, s.limit.RequestsPerUnit = l.Limit.HeaderName, uint32(min(l.Quota(), math.MaxUint32))
	s.limit.Unit, s.limit.UnitMultiplier = unit(&l.Limit.Limit)
	s.CurrentLimit = &s.limit
	if l.ResetAfter != enforcement.Never {
		s.reset.Seconds, s.reset.Nanos = l.ResetAfter/1000, int32(l.ResetAfter%1000)*int32(time.Millisecond)
		s.DurationUntilReset = &s.reset
	}
}

// periods maps the periods of calendar windows to units of Envoy.
var periods = map[enforcement.Period]ratelimitv3.RateLimitResponse_RateLimit_Unit{
	enforcement.Day: ratelimitv3.RateLimitResponse_RateLimit_DAY, enforcement.Week: ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	enforcement.Month: ratelimitv3.RateLimitResponse_RateLimit_MONTH, enforcement.Year: ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}

// units are the units of all other windows, longest first. A month and a year are missing,
// because their length varies.
var units = []struct {
	length time.Duration
	unit   ratelimitv3.RateLimitResponse_RateLimit_Unit
}{
	{7 * 24 * time.Hour, ratelimitv3.RateLimitResponse_RateLimit_WEEK},
	{24 * time.Hour, ratelimitv3.RateLimitResponse_RateLimit_DAY},
	{time.Hour, ratelimitv3.RateLimitResponse_RateLimit_HOUR},
	{time.Minute, ratelimitv3.RateLimitResponse_RateLimit_MINUTE},
	{time.Second, ratelimitv3.RateLimitResponse_RateLimit_SECOND},
}

// unit returns the window of a limit as a number of the longest unit that divides it. If the
// number is 1, it is nil. The unit is UNKNOWN if the window is not a whole number of seconds, or
// if the limit is a concurrency limit, which counts no window.
func unit(l *enforcement.Limit) (ratelimitv3.RateLimitResponse_RateLimit_Unit, *wrapperspb.UInt32Value) {
	if l.Algorithm == enforcement.Concurrency {
		return ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, nil
	}
	switch l.Period {
	case enforcement.NoPeriod:
	case enforcement.Quarter:
		return ratelimitv3.RateLimitResponse_RateLimit_MONTH, wrapperspb.UInt32(3)
	default:
		return periods[l.Period], nil
	}
	for _, u := range units {
		if n := l.Window / u.length; n > 0 && l.Window%u.length == 0 {
			if n == 1 {
				return u.unit, nil
			}
			return u.unit, wrapperspb.UInt32(uint32(n))
		}
	}
	return ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, nil
}

// headerValues converts headers to the form of Envoy, ordered by name.
func headerValues(header http.Header) []*corev3.HeaderValue {
	n := 0
	for _, texts := range header {
		n += len(texts)
	}
	memory, values := make([]corev3.HeaderValue, n), make([]*corev3.HeaderValue, 0, n)
	for name, texts := range header {
		for _, text := range texts {
			v := &memory[len(values)]
			v.Key, v.Value = name, text
			values = append(values, v)
		}
	}
	slices.SortFunc(values, func(a, b *corev3.HeaderValue) int { return strings.Compare(a.GetKey(), b.GetKey()) })
	return values
}
