package envoy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// rateLimits is RateLimitService.
type rateLimits struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	*Server
}

// maxDescriptors is the largest number of descriptors of a call.
const maxDescriptors = 100

// Entries whose keys are pseudo-headers are the route of the check. remote_address is the attribute of the client's
// address, as in the import of the configuration of envoyproxy/ratelimit. All other entries are attributes.
const (
	pathKey   = ":path"
	methodKey = ":method"
	remoteKey = "remote_address"
)

// A descriptor without a path has the path /ratelimit/ and its domain. One without a method has the method RATELIMIT.
const (
	defaultMethod = "RATELIMIT"
	defaultPath   = "/ratelimit/"
)

// A descriptor is a check that a call asks for. Its memory is used again for later calls.
type descriptor struct {
	check      enforcement.Check
	decision   enforcement.Decision
	attributes [enforcement.MaxAttributes]enforcement.Attribute
	tenant     string
	unlimited  bool // no tenant has the domain
}

// A call is the descriptors of one call.
type call struct {
	descriptors []*descriptor // the first used are of this call
	used        int
	items       []enforcement.BatchItem
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	for _, d := range c.descriptors[:c.used] {
		d.decision.Reset()
		d.check = enforcement.Check{}
		clear(d.attributes[:])
		d.tenant, d.unlimited = "", false
	}
	clear(c.items)
	c.used, c.items = 0, c.items[:0]
	calls.Put(c)
}

// next returns the memory of the next descriptor.
func (c *call) next() *descriptor {
	if c.used == len(c.descriptors) {
		c.descriptors = append(c.descriptors, new(descriptor))
	}
	d := c.descriptors[c.used]
	c.used++
	d.check = enforcement.Check{Cost: 1, Attributes: d.attributes[:0], Wire: enforcement.WireEnvoyRateLimit}
	return d
}

// ShouldRateLimit decides each descriptor as one check, in their order. Each one is charged by itself, as in
// envoyproxy/ratelimit: a denied descriptor is not charged, and the others are. An invalid descriptor fails the call,
// and nothing is charged then.
func (s *rateLimits) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	decider, who, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "domain: is required")
	case n == 0 || n > maxDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "descriptors: must be 1 to %d descriptors", maxDescriptors)
	}
	c := calls.Get().(*call)
	defer c.release()
	tenancy := s.cfg.Domains.of(r.GetDomain())
	for i, sent := range r.GetDescriptors() {
		d := c.next()
		if err := d.read(r, sent, tenancy); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "descriptors[%d].%v", i, err)
		}
		subject, err := s.subject(who, d, tenancy)
		switch {
		case err != nil:
			return nil, statusOf(err, fmt.Sprintf("descriptors[%d]", i))
		case d.unlimited:
			s.cfg.Logger.Warn("no tenant has the domain of a rate limit request: the request is not limited", "domain", r.GetDomain())
		default:
			c.items = append(c.items, enforcement.BatchItem{Subject: subject, Check: &d.check, Decision: &d.decision})
		}
	}
	if err := decider.Decide(ctx, c.items, false); err != nil {
		return nil, statusOf(err, "")
	}
	return answer(decider, c), nil
}

// subject returns the tenant of a descriptor. A key of a tenant decides for its tenant, whatever the domain. With an
// operator key, a domain without a tenant is not limited, as in envoyproxy/ratelimit. An entry that names an unknown
// tenant is an error.
func (s *rateLimits) subject(who api.Caller, d *descriptor, tenancy Tenancy) (*enforcement.Subject, error) {
	if !who.Operator() {
		return who.Subject("", &d.check)
	}
	if d.tenant == "" {
		d.unlimited = true
		return nil, nil
	}
	subject, err := who.Subject(d.tenant, &d.check)
	if err != nil && tenancy.Key == "" && api.Problem(err).Kind == problem.NotFound {
		d.unlimited = true
		return nil, nil
	}
	return subject, err
}

// read reads a descriptor. The error begins with the member that it is about.
func (d *descriptor) read(r *ratelimitv3.RateLimitRequest, sent *descriptorv3.RateLimitDescriptor, tenancy Tenancy) error {
	switch {
	case sent.GetLimit() != nil:
		return errors.New("limit: is not supported: the limits are in the plan of the tenant, and other numbers in its overrides")
	case sent.GetIsNegativeHits():
		return errors.New("is_negative_hits: is not supported")
	}
	if err := d.cost(r, sent); err != nil {
		return err
	}
	d.tenant = tenancy.Tenant
	for k, e := range sent.GetEntries() {
		if err := d.entry(e.GetKey(), e.GetValue(), tenancy); err != nil {
			return fmt.Errorf("entries[%d]: %.64q %w", k, e.GetKey(), err)
		}
	}
	if d.check.Method == "" {
		d.check.Method = defaultMethod
	}
	if d.check.Path == "" {
		if err := d.check.SetPath(defaultPath + url.PathEscape(r.GetDomain())); err != nil {
			return fmt.Errorf("domain: %w", err)
		}
	}
	return nil
}

// cost sets the cost: hits_addend of the descriptor, or else of the request, or else 1.
func (d *descriptor) cost(r *ratelimitv3.RateLimitRequest, sent *descriptorv3.RateLimitDescriptor) error {
	hits := max(1, uint64(r.GetHitsAddend()))
	if own := sent.GetHitsAddend(); own != nil {
		hits = own.GetValue()
	}
	if hits > enforcement.MaxCost {
		return fmt.Errorf("hits_addend: must be at most %d", enforcement.MaxCost)
	}
	d.check.Cost = int64(hits)
	return nil
}

// entry reads one entry.
func (d *descriptor) entry(key, value string, tenancy Tenancy) error {
	switch key {
	case tenancy.Key: // not "", because then the next cases would be wrong
		if key != "" {
			d.tenant = value
			return nil
		}
	case pathKey:
		return d.check.SetPath(value)
	case methodKey:
		return d.check.SetMethod(value)
	case remoteKey:
		key = "ip"
	}
	if slices.ContainsFunc(d.check.Attributes, func(a enforcement.Attribute) bool { return a.Name == key }) {
		return errors.New("is sent twice: give the actions different values of descriptor_key")
	}
	return d.check.AddAttribute(key, value)
}

// answer returns the answer to a call whose descriptors are decided. The headers and the body are those of the tightest
// descriptor.
func answer(decider *api.API, c *call) *ratelimitv3.RateLimitResponse {
	response := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, c.used),
	}
	var tightest *enforcement.Decision
	ids := make([]*structpb.Value, 0, c.used)
	for i, d := range c.descriptors[:c.used] {
		if d.unlimited {
			response.Statuses[i] = &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
			continue
		}
		response.Statuses[i] = statusFor(&d.decision)
		if !d.decision.Allowed {
			response.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		if tightest == nil || tighter(&d.decision, tightest) {
			tightest = &d.decision
		}
		ids = append(ids, structpb.NewStringValue(string(api.AppendDecisionID(nil, &d.decision))))
	}
	if tightest == nil {
		return response
	}
	_, header := decider.Answer(tightest)
	if tightest.Allowed {
		header.Del("Content-Type")
		header.Del("Cache-Control")
	} else {
		response.RawBody = decider.AppendBody(nil, tightest)
	}
	response.ResponseHeadersToAdd = headerValues(header)
	response.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		"tenant":       structpb.NewStringValue(tightest.Subject.Tenant),
		"decision_ids": structpb.NewListValue(&structpb.ListValue{Values: ids}),
	}}
	if plan := tightest.Subject.Plan; plan != nil {
		response.DynamicMetadata.Fields["plan"] = structpb.NewStringValue(plan.Slug)
	}
	return response
}

// tighter reports whether a decides more than b what the client can do: a denial before an allowed check, then the
// longer wait, then fewer units left.
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

// statusFor returns the status of a descriptor, with its tightest limit. It has no limit if limits did not decide.
func statusFor(d *enforcement.Decision) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	s := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
	if !d.Allowed {
		s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	l := api.Tightest(d)
	if l == nil {
		return s
	}
	s.LimitRemaining = uint32(min(l.Remaining, math.MaxUint32))
	s.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		Name: l.Limit.HeaderName, RequestsPerUnit: uint32(min(l.Limit.Quota, math.MaxUint32)),
	}
	s.CurrentLimit.Unit, s.CurrentLimit.UnitMultiplier = unit(&l.Limit.Limit)
	if l.ResetAfter != enforcement.Never {
		s.DurationUntilReset = durationpb.New(time.Duration(l.ResetAfter) * time.Millisecond)
	}
	return s
}

// periods are the units of calendar windows.
var periods = map[enforcement.Period]ratelimitv3.RateLimitResponse_RateLimit_Unit{
	enforcement.Day: ratelimitv3.RateLimitResponse_RateLimit_DAY, enforcement.Week: ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	enforcement.Month: ratelimitv3.RateLimitResponse_RateLimit_MONTH, enforcement.Year: ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}

// units are the units of other windows, from the longest one. A month or a year has no fixed length.
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

// unit returns the window of a limit as a number of the longest unit that divides it. The number is nil for 1. A window
// that is not a whole number of seconds is UNKNOWN.
func unit(l *enforcement.Limit) (ratelimitv3.RateLimitResponse_RateLimit_Unit, *wrapperspb.UInt32Value) {
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

// headerValues returns headers in the form of Envoy.
func headerValues(header http.Header) []*corev3.HeaderValue {
	values := make([]*corev3.HeaderValue, 0, len(header))
	for name, texts := range header {
		for _, text := range texts {
			values = append(values, &corev3.HeaderValue{Key: name, Value: text})
		}
	}
	slices.SortFunc(values, func(a, b *corev3.HeaderValue) int { return strings.Compare(a.GetKey(), b.GetKey()) })
	return values
}
