package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/http2"
	"github.com/headgate/headgate/internal/problem"
)

// rateLimits is the gRPC service RateLimitService, which Envoy's filter ratelimit calls.
type rateLimits struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	*Server
}

// maxDescriptors is the maximum number of descriptors in one call.
const maxDescriptors = 100

// Keys of descriptor entries that are not attributes of the check. :path and :method set the route
// of the check. remote_address is the client's IP address. Configurations for envoyproxy/ratelimit
// use this key too.
const (
	pathKey   = ":path"
	methodKey = ":method"
	remoteKey = "remote_address"

	// These set the options of the check that POST /v1/check names Idempotency-Key, lease and
	// refundable. A client cannot add an entry with such a key, because only the configuration of
	// Envoy sets the keys of entries.
	idempotencyKey = ":idempotency-key"
	leaseKey       = ":lease"
	leaseTTLKey    = ":lease-ttl-ms"
	refundableKey  = ":refundable"
)

// The method and the path of the check for a descriptor that has no method or no path. The name
// of the domain is appended to defaultPath.
const (
	defaultMethod = "RATELIMIT"
	defaultPath   = "/ratelimit/"
)

// A descriptor is one check of a call. Its memory is reused for later calls.
type descriptor struct {
	check      enforcement.Check
	decision   enforcement.Decision
	attributes [enforcement.MaxAttributes]enforcement.Attribute
	tenant     string
	named      bool // an entry names the tenant; its value can be empty
	unlimited  bool // no tenant has the domain
}

// A call holds the descriptors of one gRPC call. Calls are pooled.
type call struct {
	descriptors []*descriptor // the first "used" of these belong to this call; the others are memory for later calls
	used        int
	items       []enforcement.BatchItem
	path        string      // the path of the check for a descriptor without an entry :path
	from        *http2.Call // nil if grpc-go serves the call
	decider     *api.API    // nil if grpc-go serves the call
	header      http.Header // empty before answer
	text        []byte      // IDs of the decisions; buffer for header values
}

var calls = sync.Pool{New: func() any { return &call{header: http.Header{}, text: make([]byte, 0, 512)} }}

func (c *call) release() {
	for _, d := range c.descriptors[:c.used] {
		d.decision.Reset()
		d.check = enforcement.Check{}
		clear(d.attributes[:])
		d.tenant, d.named, d.unlimited = "", false, false
	}
	clear(c.items)
	clear(c.header)
	c.used, c.items, c.path, c.from, c.decider = 0, c.items[:0], "", nil, nil
	calls.Put(c)
}

// next returns memory for the next descriptor of the call.
func (c *call) next() *descriptor {
	if c.used == len(c.descriptors) {
		c.descriptors = append(c.descriptors, new(descriptor))
	}
	d := c.descriptors[c.used]
	c.used++
	d.check = enforcement.Check{Cost: 1, DefaultCost: true, Attributes: d.attributes[:0], Wire: enforcement.WireEnvoyRateLimit}
	return d
}

// ShouldRateLimit decides the descriptors in order. Each descriptor is a separate check, as in envoyproxy/ratelimit: if
// one descriptor is denied, the others are still charged. If a descriptor is invalid, the call fails, and nothing is
// charged. grpc-go calls this method only for calls that package http2 does not serve, such as those with compressed
// messages.
func (s *rateLimits) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	decider, who, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	c := calls.Get().(*call)
	defer c.release()
	if err := s.read(c, who, r); err != nil {
		return refused(decider, c, err)
	}
	if err := decider.Decide(ctx, c.items, false); err != nil {
		return nil, statusOf(err, "")
	}
	if refused := c.undecided(decider); refused != nil {
		return refused, nil
	}
	return answer(decider, c), nil
}

// undecided returns the response to a call with a descriptor that was not decided, because its idempotency key belongs to another check, or
// because the tenant has too many records. It returns nil if all were decided. The idempotency key can come from a client, so the response
// is no gRPC error; see valueError. The other descriptors were decided and charged. If the call is repeated with the same idempotency
// keys, they are not charged again.
func (c *call) undecided(decider *api.API) *ratelimitv3.RateLimitResponse {
	first := slices.IndexFunc(c.descriptors[:c.used], func(d *descriptor) bool { return api.KeyRefused(&d.decision) != nil })
	if first < 0 {
		return nil
	}
	statuses := make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, c.used)
	for i, d := range c.descriptors[:c.used] {
		s := new(descriptorStatus)
		statuses[i] = &s.RateLimitResponse_DescriptorStatus
		switch {
		case api.KeyRefused(&d.decision) != nil:
			s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
		case d.unlimited:
			s.Code = ratelimitv3.RateLimitResponse_OK
		default:
			s.set(&d.decision)
		}
	}
	p := *api.Problem(api.KeyRefused(&c.descriptors[first].decision))
	p.Message = fmt.Sprintf("descriptors[%d]: %s", first, p.Message)
	if c.used > 1 {
		p.Message += "; the other descriptors were decided, and each one that passed was charged"
	}
	return overLimit(decider, &p, statuses)
}

// serve answers all calls that have arrived on a connection. If the node has free slots, serve decides the checks of all calls
// together. If other checks wait on this node, serve groups the calls by tenant, and each group waits in the queue of its tenant.
func (s *rateLimits) serve(ctx context.Context, sent []*http2.Call) {
	var r ratelimitv3.RateLimitRequest
	t := turns.Get().(*turn)
	defer t.release()
	for _, from := range sent {
		decider, who, err := s.callerOf(from)
		if err == nil {
			err = decode(from, &r)
		}
		if err != nil {
			fail(from, err)
			continue
		}
		c := calls.Get().(*call)
		if err = s.read(c, who, &r); err != nil {
			response, err := refused(decider, c, err)
			c.release()
			answerOrFail(from, response, err)
			continue
		}
		c.from, c.decider = from, decider
		t.calls, t.items = append(t.calls, c), append(t.items, c.items...)
	}
	if len(t.calls) == 0 {
		return
	}
	if t.calls[0].decider.TryDecide(ctx, t.items) {
		t.answer(nil)
		return
	}
	slices.SortStableFunc(t.calls, func(a, b *call) int { return cmp.Compare(a.queue(), b.queue()) })
	var others sync.WaitGroup
	for rest := t.calls; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].queue() == rest[0].queue() {
			n++
		}
		one := turns.Get().(*turn)
		one.calls = append(one.calls, rest[:n]...)
		rest = rest[n:]
		others.Go(func() { s.wait(ctx, one) })
	}
	clear(t.calls) // the others release them
	t.calls = t.calls[:0]
	others.Wait()
}

// wait waits in the admission queue of a tenant, decides the calls of this tenant, and answers them.
func (s *rateLimits) wait(ctx context.Context, t *turn) {
	defer t.release()
	defer func() {
		if cause := recover(); cause != nil {
			t.answer(s.panicked(cause, ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName))
		}
	}()
	for _, c := range t.calls {
		t.items = append(t.items, c.items...)
	}
	err := t.calls[0].decider.Decide(ctx, t.items, false)
	if err != nil {
		err = statusOf(err, "")
	}
	t.answer(err)
}

// A turn holds calls that are decided together. Turns are pooled.
type turn struct {
	calls []*call
	items []enforcement.BatchItem
}

var turns = sync.Pool{New: func() any { return new(turn) }}

func (t *turn) release() {
	for _, c := range t.calls {
		c.release()
	}
	clear(t.calls)
	clear(t.items)
	t.calls, t.items = t.calls[:0], t.items[:0]
	turns.Put(t)
}

// answer sends the response to each call. If err is not nil, all calls fail with err.
func (t *turn) answer(err error) {
	for _, c := range t.calls {
		if err != nil {
			fail(c.from, err)
			continue
		}
		if refused := c.undecided(c.decider); refused != nil {
			answerOrFail(c.from, refused, nil)
			continue
		}
		c.from.Answer(func(b []byte) ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(b, answer(c.decider, c)) })
	}
}

// queue returns the number of the tenant in whose admission queue the call waits. It is the tenant of the call's first
// check.
func (c *call) queue() uint32 {
	if len(c.items) == 0 {
		return 0
	}
	return c.items[0].Subject.Number
}

// read checks a request, and adds its checks to c.
func (s *rateLimits) read(c *call, who api.Caller, r *ratelimitv3.RateLimitRequest) error {
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "domain: is required")
	case n == 0 || n > maxDescriptors:
		return status.Errorf(codes.InvalidArgument, "descriptors: must be 1 to %d descriptors", maxDescriptors)
	}
	tenancy := s.cfg.Domains.of(r.GetDomain())
	c.path = defaultPath + url.PathEscape(r.GetDomain())
	for i, sent := range r.GetDescriptors() {
		d := c.next()
		if err := d.read(r, sent, tenancy, c.path); err != nil {
			return fmt.Errorf("descriptors[%d].%w", i, err)
		}
		if d.check.IdempotencyKey != "" { // the key of each descriptor must differ, even if their entries are equal
			d.check.IdempotencyKey += "\n" + strconv.Itoa(i)
		}
		subject, err := s.subject(who, d, tenancy)
		switch {
		case err != nil:
			failed := statusOf(err, fmt.Sprintf("descriptors[%d]", i))
			if ofClient(api.Problem(err), tenancy) {
				return &valueError{errors.New(status.Convert(failed).Message())}
			}
			return failed
		case d.unlimited:
			s.cfg.Logger.Warn("no tenant has the domain of a rate limit request: the request is not limited", "domain", r.GetDomain())
		default:
			c.items = append(c.items, enforcement.BatchItem{Subject: subject, Check: &d.check, Decision: &d.decision})
		}
	}
	return nil
}

// ofClient reports whether the values of a client can cause the error p of Subject: the tenant, if an entry names it,
// the attribute that is the cost of a policy, or the cost.
func ofClient(p *problem.Problem, tenancy Tenancy) bool {
	switch p.Kind {
	case problem.NotFound:
		return tenancy.Key != ""
	case problem.Malformed:
		return !slices.ContainsFunc(p.Fields, func(f problem.Field) bool { return f.Pointer == "limit" })
	case problem.Forbidden:
		return p.Code == "key_max_cost"
	}
	return false
}

// A valueError is the error for an invalid value that may come from a client of Envoy, through the actions of a route. The call then gets
// the response OVER_LIMIT and no gRPC error. After a gRPC error, the filter would apply failure_mode_deny, which is usually false, and a
// client could bypass its limits by sending an invalid value.
type valueError struct{ error }

// Unwrap returns the cause.
func (e *valueError) Unwrap() error { return e.error }

// refused returns the response to a call with an invalid descriptor: OVER_LIMIT for a valueError,
// and a gRPC error otherwise. Nothing is charged.
func refused(decider *api.API, c *call, err error) (*ratelimitv3.RateLimitResponse, error) {
	var value *valueError
	if !errors.As(err, &value) {
		if _, is := status.FromError(err); !is {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		return nil, err
	}
	statuses := make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, c.used)
	for i := range statuses { // reading stops at the invalid descriptor, so the last one has the invalid value
		code := ratelimitv3.RateLimitResponse_OK
		if i == c.used-1 {
			code = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		statuses[i] = &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: code}
	}
	return overLimit(decider, problem.New(problem.Malformed, "%s", err.Error()), statuses), nil
}

// overLimit returns the response OVER_LIMIT with the problem document of p.
func overLimit(
	decider *api.API, p *problem.Problem, statuses []*ratelimitv3.RateLimitResponse_DescriptorStatus,
) *ratelimitv3.RateLimitResponse {
	_, header, body := decider.Rejection(p)
	if p.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	return &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OVER_LIMIT, RawBody: body, ResponseHeadersToAdd: headerValues(header), Statuses: statuses,
	}
}

// subject returns the tenant of a descriptor. With a tenant key, it is the tenant of the key,
// and the domain is ignored. With an operator key, a domain without a tenant has no limits, as
// in envoyproxy/ratelimit. An entry that names an unknown tenant, or none, is an error.
func (s *Server) subject(who api.Caller, d *descriptor, tenancy Tenancy) (*enforcement.Subject, error) {
	if !who.Operator() {
		return who.Subject("", &d.check)
	}
	if d.tenant == "" && !d.named {
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

// read converts a descriptor of Envoy to a check. path is the path of a check whose descriptor has
// none. An error begins with the name of the invalid member.
func (d *descriptor) read(r *ratelimitv3.RateLimitRequest, sent *descriptorv3.RateLimitDescriptor, tenancy Tenancy, path string) error {
	if sent.GetIsNegativeHits() {
		return errors.New("is_negative_hits: is not supported")
	}
	if err := d.limit(sent.GetLimit()); err != nil {
		return err
	}
	if err := d.cost(r, sent); err != nil {
		return err
	}
	d.tenant = tenancy.Tenant
	for k, e := range sent.GetEntries() {
		same := func(o *descriptorv3.RateLimitDescriptor_Entry) bool { return o.GetKey() == e.GetKey() }
		if slices.ContainsFunc(sent.GetEntries()[:k], same) {
			return fmt.Errorf("entries[%d]: %.64q %w", k, e.GetKey(), errSentTwice)
		}
		if err := d.entry(e.GetKey(), e.GetValue(), tenancy); err != nil {
			err = fmt.Errorf("entries[%d]: %.64q %w", k, e.GetKey(), err)
			if errors.Is(err, errSentTwice) { // by the configuration of Envoy
				return err
			}
			return &valueError{err}
		}
	}
	if d.check.Method == "" {
		d.check.Method = defaultMethod
	}
	if d.check.Path == "" {
		if err := d.check.SetPath(path); err != nil {
			return fmt.Errorf("domain: %w", err)
		}
	}
	return nil
}

var errSentTwice = errors.New("is sent twice: give the actions different values of descriptor_key")

// windows maps the units of a limit that Envoy sends to their lengths, as in envoyproxy/ratelimit.
var windows = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second, typev3.RateLimitUnit_MINUTE: time.Minute, typev3.RateLimitUnit_HOUR: time.Hour,
	typev3.RateLimitUnit_DAY: 24 * time.Hour, typev3.RateLimitUnit_MONTH: 30 * 24 * time.Hour, typev3.RateLimitUnit_YEAR: 365 * 24 * time.Hour,
}

// limit sets the limit that Envoy sends with the descriptor. It replaces the limits of a
// policy. Most descriptors have none.
func (d *descriptor) limit(sent *descriptorv3.RateLimitDescriptor_RateLimitOverride) error {
	if sent == nil {
		return nil
	}
	window, known := windows[sent.GetUnit()]
	if !known {
		return errors.New("limit.unit: must be SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
	}
	d.check.SentLimit = enforcement.SentLimit{Quota: int64(sent.GetRequestsPerUnit()), Window: window}
	return nil
}

// cost sets the cost of the check to the hits_addend of the descriptor. If the descriptor has none,
// the hits_addend of the request is used. If neither is set, each policy uses its default cost.
func (d *descriptor) cost(r *ratelimitv3.RateLimitRequest, sent *descriptorv3.RateLimitDescriptor) error {
	hits := uint64(r.GetHitsAddend())
	if own := sent.GetHitsAddend(); own != nil {
		hits = own.GetValue()
	} else if hits == 0 {
		return nil
	}
	if hits > enforcement.MaxCost {
		return &valueError{fmt.Errorf("hits_addend: must be at most %d", enforcement.MaxCost)}
	}
	d.check.Cost, d.check.DefaultCost = int64(hits), false
	return nil
}

// entry adds one entry of the descriptor to the check.
func (d *descriptor) entry(key, value string, tenancy Tenancy) error {
	switch key {
	case tenancy.Key: // "" means that no entry names the tenant
		if key != "" {
			d.tenant, d.named = value, true
			return nil
		}
	case pathKey:
		return d.check.SetPath(value)
	case methodKey:
		return d.check.SetMethod(value)
	case idempotencyKey, leaseKey, leaseTTLKey, refundableKey:
		return d.repetition(key, value)
	case remoteKey:
		key = "ip"
	}
	if slices.ContainsFunc(d.check.Attributes, func(a enforcement.Attribute) bool { return a.Name == key }) {
		return errSentTwice
	}
	return d.check.AddAttribute(key, value)
}

// repetition sets the option of the check that one of the keys beginning with a colon names: the
// idempotency key, the lease, its time to live, or whether the check can be refunded.
func (d *descriptor) repetition(key, value string) error {
	switch key {
	case idempotencyKey:
		if value == "" || api.ValidIdempotencyKey(value) != nil {
			return errors.New("must be 1 to 255 visible ASCII characters")
		}
		d.check.IdempotencyKey = value
	case leaseKey:
		return d.check.SetLeaseID(value)
	case leaseTTLKey:
		ms, err := strconv.ParseInt(value, 10, 64)
		if most := enforcement.MaxLeaseTTL.Milliseconds(); err != nil || ms < 1 || ms > most {
			return fmt.Errorf("must be a whole number of milliseconds from 1 to %d", most)
		}
		d.check.LeaseTTL = time.Duration(ms) * time.Millisecond
	case refundableKey:
		if value != "true" {
			return errors.New("must be true, or left out")
		}
		d.check.Refundable = true
	}
	return nil
}
