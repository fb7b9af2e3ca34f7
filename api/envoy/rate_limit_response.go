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
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
)

// A descriptorStatus has the memory for the status of one descriptor.
type descriptorStatus struct {
	ratelimitv3.RateLimitResponse_DescriptorStatus
	limit ratelimitv3.RateLimitResponse_RateLimit
	reset durationpb.Duration
}

var serveCheap = []string{api.ServeCheap}

// answer returns the response to a call after all its descriptors are decided. The headers and the
// body describe the descriptor with the tightest decision.
func answer(decider *api.API, c *call) *ratelimitv3.RateLimitResponse {
	r, all := new(ratelimitv3.RateLimitResponse), make([]descriptorStatus, c.used)
	r.OverallCode = ratelimitv3.RateLimitResponse_OK
	r.Statuses = make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, c.used)
	var tightest *enforcement.Decision
	var delay int64    // the longest of the descriptors
	var serve []string // set if a descriptor is over a limit in mode degrade
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
		return r
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
	r.ProtoReflect().SetUnknown(c.metadata(tightest, delay, serve != nil))
	return r
}

// metadata returns the encoded field dynamic_metadata of the response. It does not use structpb, because structpb builds a map, which
// took a third of the time of a call. delay is in milliseconds. c.text holds the IDs of the decisions.
func (c *call) metadata(tightest *enforcement.Decision, delay int64, serveCheap bool) []byte {
	var scratch [128]byte
	value := scratch[:0]
	ids := make([]byte, 0, len(c.text)+8*c.used)
	for rest := c.text; len(rest) > 0; rest = rest[api.DecisionIDLength:] {
		ids = appendBytes(ids, listValues, appendBytes(value, valueString, rest[:api.DecisionIDLength]))
	}
	m := make([]byte, 0, 256+len(ids))
	m = appendMember(m, "decision_ids", appendBytes(value, valueList, ids))
	m = appendMember(m, "degraded", protowire.AppendVarint(
		protowire.AppendTag(value, valueBool, protowire.VarintType), protowire.EncodeBool(tightest.Degraded)))
	if delay > 0 {
		m = appendMember(m, "delay_ms", protowire.AppendFixed64(
			protowire.AppendTag(value, valueNumber, protowire.Fixed64Type), math.Float64bits(float64(delay))))
	}
	if tightest.Lease != "" {
		m = appendMember(m, "lease", appendBytes(value, valueString, tightest.Lease))
	}
	if percentage := tightest.NearLimit(); percentage > 0 {
		m = appendMember(m, "near_limit", protowire.AppendFixed64(
			protowire.AppendTag(value, valueNumber, protowire.Fixed64Type), math.Float64bits(float64(percentage))))
	}
	if plan := tightest.Subject.Plan; plan != nil {
		m = appendMember(m, "plan", appendBytes(value, valueString, plan.Slug))
	}
	m = appendMember(m, "reason", appendBytes(value, valueString, tightest.Reason))
	if until := tightest.RefundableUntil; until != 0 {
		text := enforcement.Instant(until).Format(enforcement.InstantLayout)
		m = appendMember(m, "refundable_until", appendBytes(value, valueString, text))
	}
	if tightest.Idempotency == enforcement.Replayed {
		m = appendMember(m, "replayed", protowire.AppendVarint(
			protowire.AppendTag(value, valueBool, protowire.VarintType), protowire.EncodeBool(true)))
	}
	if serveCheap {
		m = appendMember(m, "serve", appendBytes(value, valueString, api.ServeCheap))
	}
	m = appendMember(m, "tenant", appendBytes(value, valueString, tightest.Subject.Tenant))
	return appendBytes(make([]byte, 0, len(m)+4), rateLimitMetadata, m)
}

// rateLimitMetadata is the number of the field dynamic_metadata of RateLimitResponse.
var rateLimitMetadata = (&ratelimitv3.RateLimitResponse{}).ProtoReflect().Descriptor().Fields().ByName("dynamic_metadata").Number()

// tighter reports whether decision a restricts the client more than decision b. A denial is tighter
// than an allowed check. Of two denials, the one with the longer wait is tighter. Otherwise, the
// decision with fewer remaining units is tighter.
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

// set sets the status of a descriptor, with the tightest limit of its decision. If the decision has
// no limit, the status has none.
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

// periods maps the periods of calendar windows to Envoy's units of time.
var periods = map[enforcement.Period]ratelimitv3.RateLimitResponse_RateLimit_Unit{
	enforcement.Day: ratelimitv3.RateLimitResponse_RateLimit_DAY, enforcement.Week: ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	enforcement.Month: ratelimitv3.RateLimitResponse_RateLimit_MONTH, enforcement.Year: ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}

// units has Envoy's units of time for all other windows, longest first. A month and a year are
// missing, because their length varies.
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

// unit expresses the window of a limit in Envoy's units of time. It returns the longest unit that
// divides the window, and how many of this unit the window has. This number is nil if it is 1. The
// unit is UNKNOWN if the window is not a whole number of seconds, or if the limit is a concurrency
// limit, which has no window.
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

// headerValues converts headers to Envoy's type, ordered by name.
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
