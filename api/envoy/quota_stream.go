package envoy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// Bounds of RateLimitQuotaService.
const (
	maxQuotaStreams = 1000  // open at a time
	maxBuckets      = 5000  // of one stream
	maxPools        = 50000 // of all streams
	maxBucketID     = 8 << 10
	quotaChunk      = 100 // buckets that are decided together
)

// quotas is the gRPC service RateLimitQuotaService. For each bucket, Envoy reports how many
// requests it has allowed. In return, it receives an assignment: a number of requests that it may
// allow before it reports again. A bucket stands for a check, like a descriptor of
// RateLimitService. The requests of an assignment are charged before Envoy receives it.
type quotas struct {
	quotav3.UnimplementedRateLimitQuotaServiceServer
	*Server
	now     func() time.Time
	streams atomic.Int64

	mu    sync.Mutex
	pools map[string]*quotaPool
	swept time.Time
}

func newQuotas(s *Server) *quotas {
	return &quotas{Server: s, now: time.Now, pools: map[string]*quotaPool{}}
}

// A quotaStream is the state of one gRPC stream from an Envoy.
type quotaStream struct {
	*quotas
	ctx        context.Context
	domain     string
	assignment int64 // maximum number of requests in an assignment; 0 means the default
	cost       int64 // cost of one request, if hasCost is set
	hasCost    bool
	buckets    map[string]*quotaBucket
	full       bool // set when a bucket got no assignment because there are too many buckets; see tooMany
}

// StreamRateLimitQuotas answers each report of an Envoy with the assignments that its buckets
// need.
func (q *quotas) StreamRateLimitQuotas(stream quotav3.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	if q.streams.Add(1) > maxQuotaStreams {
		q.streams.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "the node serves at most %d streams of quota", maxQuotaStreams)
	}
	defer q.streams.Add(-1)
	s := &quotaStream{quotas: q, ctx: stream.Context(), buckets: map[string]*quotaBucket{}}
	defer s.leave()
	if err := s.readOptions(); err != nil {
		return err
	}
	reports, failed := s.receive(stream)
	for {
		select {
		case <-q.ending:
			return status.Error(codes.Unavailable, "the node is stopping")
		case err := <-failed:
			return err
		case report := <-reports:
			response, err := s.report(report)
			if err != nil {
				return err
			}
			if len(response.GetBucketAction()) == 0 {
				continue
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		}
	}
}

// leave removes the stream's buckets from their pools.
func (s *quotaStream) leave() {
	for _, b := range s.buckets {
		b.leave()
	}
}

// receive reads the stream in the background. It returns a channel with the reports, and a channel
// with the final error of the stream. That error is nil if Envoy ends the stream. The caller must
// not read from either channel after the stream's context ends.
func (s *quotaStream) receive(stream quotav3.RateLimitQuotaService_StreamRateLimitQuotasServer) (
	<-chan *quotav3.RateLimitQuotaUsageReports, <-chan error,
) {
	reports, failed := make(chan *quotav3.RateLimitQuotaUsageReports), make(chan error, 1)
	go func() {
		for {
			report, err := stream.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				failed <- err
				return
			}
			select {
			case reports <- report:
			case <-s.ctx.Done():
				return
			}
		}
	}()
	return reports, failed
}

// quotaOptions has the options of a stream, which the loop of readOptions reads.
var quotaOptions = []string{"assignment", "cost"}

// readOptions reads the options of the stream from its metadata.
func (s *quotaStream) readOptions() error {
	sent, _ := metadata.FromIncomingContext(s.ctx)
	for name := range sent {
		if err := optionFault(name, quotaOptions); err != nil {
			return err
		}
	}
	for _, o := range []struct {
		name string
		set  func(int64)
		from int64
	}{
		{"assignment", func(n int64) { s.assignment = n }, 1},
		{"cost", func(n int64) { s.cost, s.hasCost = n, true }, 0},
	} {
		values := metadata.ValueFromIncomingContext(s.ctx, optionPrefix+o.name)
		if len(values) == 0 {
			continue
		}
		n, err := strconv.ParseInt(strings.Join(values, ","), 10, 64)
		if err != nil || n < o.from || n > enforcement.MaxCost {
			return status.Errorf(codes.InvalidArgument, "%s: must be a whole number from %d to %d", optionPrefix+o.name, o.from, enforcement.MaxCost)
		}
		o.set(n)
	}
	return nil
}

// A quotaAsk holds the intermediate results for one bucket while its report is processed.
type quotaAsk struct {
	bucket  *quotaBucket
	subject *enforcement.Subject
	demand  int64 // number of requests since the last report
	asks    bool  // the bucket needs another assignment
	n       int64 // number of requests to charge for the assignment
	found   bool  // the pool had unused requests for the bucket

	owed, peek, take             enforcement.Check
	owedDecision, state, granted enforcement.Decision
}

// report answers one report. If it returns an error, the stream ends.
func (s *quotaStream) report(r *quotav3.RateLimitQuotaUsageReports) (*quotav3.RateLimitQuotaResponse, error) {
	decider, who, err := s.caller(s.ctx) // authenticates each report, because the key can expire or be revoked
	if err != nil {
		return nil, err
	}
	switch domain := r.GetDomain(); {
	case s.domain == "" && domain == "":
		return nil, status.Error(codes.InvalidArgument, "domain: is required in the first report")
	case s.domain == "":
		s.domain = domain
	case domain != "" && domain != s.domain:
		return nil, status.Error(codes.InvalidArgument, "domain: must be that of the first report; open another stream for another domain")
	}
	s.sweep()
	response := &quotav3.RateLimitQuotaResponse{}
	base := 0
	for part := range slices.Chunk(r.GetBucketQuotaUsages(), quotaChunk) {
		var asks []*quotaAsk
		for i, usage := range part {
			if err := validUsage(usage); err != nil {
				return nil, status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d].%v", base+i, err)
			}
			a, action := s.settle(who, usage)
			if action != nil && nameable(action.GetBucketId()) {
				response.BucketAction = append(response.BucketAction, action)
			}
			if a != nil {
				asks = append(asks, a)
			}
		}
		base += len(part)
		response.BucketAction = append(response.BucketAction, s.decide(decider, asks)...)
	}
	return response, nil
}

// validUsage returns an error if the reported usage of a bucket is invalid. The error begins
// with the name of the invalid member.
func validUsage(u *quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage) error {
	switch {
	case bucketSize(u.GetBucketId()) == 0:
		return errors.New("bucket_id: is required")
	case u.GetNumRequestsAllowed() > math.MaxInt32 || u.GetNumRequestsDenied() > math.MaxInt32:
		return fmt.Errorf("num_requests_allowed and num_requests_denied: must be at most %d", math.MaxInt32)
	}
	return nil
}

// bucketSize returns the number of bytes of the keys and values of a bucket.
func bucketSize(id *quotav3.BucketId) (size int) {
	for key, value := range id.GetBucket() {
		size += len(key) + len(value)
	}
	return size
}

// nameable reports whether a response can contain the ID of a bucket: its texts are UTF-8. Envoy rejects a message with
// other texts, and then ends the stream.
func nameable(id *quotav3.BucketId) bool {
	for key, value := range id.GetBucket() {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return false
		}
	}
	return true
}

// settle records the reported usage of a bucket. If the bucket must be charged or needs an
// assignment, it returns a quotaAsk with the checks for that. If Envoy can be answered without a
// decision, it returns the action. Otherwise it returns neither.
func (s *quotaStream) settle(who api.Caller, usage *quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage) (*quotaAsk, *bucketAction) {
	id := usage.GetBucketId()
	name := bucketName(id)
	b, now := s.buckets[name], s.now()
	if b == nil {
		if len(s.buckets) == maxBuckets {
			return s.tooMany(), nil
		}
		d, err := s.read(id)
		if b = (&quotaBucket{id: id, descriptor: d, nameable: nameable(id)}); err != nil {
			return nil, s.invalid(b, err)
		}
	}
	subject, err := s.subject(who, b.descriptor, s.cfg.Domains.of(s.domain))
	switch {
	case err != nil:
		return nil, s.invalid(b, err)
	case subject == nil:
		s.cfg.Logger.Warn("no tenant has the domain of a rate limit quota: the bucket is not limited", "domain", s.domain)
		return nil, b.allow()
	}
	if b.pool == nil {
		if !s.join(b, fmt.Sprintf("%s %t %d %s", subject.TenantID, s.hasCost, s.cost, name)) {
			return s.tooMany(), nil
		}
		s.buckets[name] = b
		if !b.nameable {
			s.cfg.Logger.Warn("a bucket of Envoy is not UTF-8, so no answer can name it: Envoy applies its no_assignment_behavior",
				"domain", s.domain)
		}
	}
	allowed, denied := int64(usage.GetNumRequestsAllowed()), int64(usage.GetNumRequestsDenied())
	owed := b.report(allowed, now)
	a := &quotaAsk{bucket: b, subject: subject, demand: allowed + denied}
	if a.demand == 0 && b.ended() {
		delete(s.buckets, name)
		b.leave()
		return nil, b.abandon()
	}
	if a.asks = b.nameable && b.asks(a.demand, now); !a.asks && owed == 0 {
		return nil, nil
	}
	a.owed, a.peek, a.take = b.descriptor.check, b.descriptor.check, b.descriptor.check
	a.owed.Mode, a.owed.Requests, a.peek.Mode = enforcement.Force, owed, enforcement.Peek
	return a, nil
}

// invalid logs why a bucket is not a valid check, and returns an action that makes Envoy deny the
// bucket's requests. It does not return an error, because an error would end the stream, and one
// client with an invalid value could take away the quota of all other clients.
func (s *quotaStream) invalid(b *quotaBucket, err error) *bucketAction {
	s.cfg.Logger.Warn("a bucket of Envoy is no check: Envoy denies its requests", "domain", s.domain, "error", err)
	return b.deny(assignmentTTL)
}

// tooMany logs that a bucket gets no assignment, once for each stream. Envoy then applies its
// no_assignment_behavior.
func (s *quotaStream) tooMany() *quotaAsk {
	if !s.full {
		s.full = true
		s.cfg.Logger.Error("Envoy has too many buckets: new ones get no quota",
			"domain", s.domain, "of_one_stream", maxBuckets, "of_the_node", maxPools)
	}
	return nil
}

// read converts the ID of a bucket to a check. The entries of the ID have the same meaning as
// those of a descriptor.
func (s *quotaStream) read(id *quotav3.BucketId) (*descriptor, error) {
	if bucketSize(id) > maxBucketID {
		return nil, fmt.Errorf("bucket_id: must be at most %d bytes", maxBucketID)
	}
	sent := &descriptorv3.RateLimitDescriptor{}
	for _, key := range bucketKeys(id) {
		sent.Entries = append(sent.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: key, Value: id.GetBucket()[key]})
	}
	d := &descriptor{}
	d.check = enforcement.Check{Cost: 1, DefaultCost: true, Attributes: d.attributes[:0], Wire: enforcement.WireEnvoyQuota}
	if err := d.read(&ratelimitv3.RateLimitRequest{}, sent, s.cfg.Domains.of(s.domain), defaultPath+url.PathEscape(s.domain)); err != nil {
		return nil, err
	}
	if c := &d.check; c.IdempotencyKey != "" || c.Lease != "" || c.LeaseTTL != 0 || c.Refundable {
		return nil, errors.New("bucket_id: a bucket has many requests, and these have no idempotency key, lease or refund")
	}
	if s.hasCost {
		d.check.Cost, d.check.DefaultCost = s.cost, false
	}
	return d, nil
}

// decide charges two kinds of requests: those that Envoy allowed without an assignment, and those
// of new assignments. It returns the new assignments. If the node is overloaded, the buckets keep
// their assignments until the next report.
func (s *quotaStream) decide(decider *api.API, asks []*quotaAsk) (actions []*bucketAction) {
	var items []enforcement.BatchItem
	for _, a := range asks {
		if a.owed.Requests > 0 {
			items = append(items, enforcement.BatchItem{Subject: a.subject, Check: &a.owed, Decision: &a.owedDecision})
		}
		if a.asks {
			items = append(items, enforcement.BatchItem{Subject: a.subject, Check: &a.peek, Decision: &a.state})
		}
	}
	if len(items) == 0 {
		return nil
	}
	if err := decider.Decide(s.ctx, items, false); err != nil {
		s.overloaded(err, asks)
		return nil
	}
	now := s.now()
	items = items[:0]
	for _, a := range asks {
		if !a.asks {
			continue
		}
		a.n, a.found = a.bucket.size(&a.state, a.demand, s.assignment, now)
		if a.n > 0 || !a.state.Allowed && !a.found {
			a.take.Requests = max(a.n, 1) // if n is 0, one request is checked, so that its denial is recorded
			items = append(items, enforcement.BatchItem{Subject: a.subject, Check: &a.take, Decision: &a.granted})
		}
	}
	if len(items) > 0 {
		if err := decider.Decide(s.ctx, items, false); err != nil {
			s.overloaded(err, nil)
			return nil
		}
	}
	for _, a := range asks {
		if !a.asks {
			continue
		}
		last := &a.state
		if a.granted.Subject != nil {
			last = &a.granted
		}
		actions = append(actions, a.bucket.assign(last, a.n, a.found, now)...)
	}
	return actions
}

// overloaded handles the error of a node that is too busy. It marks the uncharged requests that
// Envoy allowed as owed, so that the next report charges them.
func (s *quotaStream) overloaded(err error, asks []*quotaAsk) {
	if api.Problem(err).Kind != problem.Unavailable {
		s.cfg.Logger.Error("decide the quota of an Envoy", "error", err)
	}
	for _, a := range asks {
		a.bucket.owe(a.owed.Requests)
	}
}

// bucketKeys returns the keys of a bucket in ascending order.
func bucketKeys(id *quotav3.BucketId) []string {
	keys := make([]string, 0, len(id.GetBucket()))
	for key := range id.GetBucket() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// bucketName returns a text that identifies a bucket: equal buckets have the same text, and
// different buckets have different ones.
func bucketName(id *quotav3.BucketId) string {
	var name []byte
	for _, key := range bucketKeys(id) {
		for _, text := range []string{key, id.GetBucket()[key]} {
			name = append(binary.AppendUvarint(name, uint64(len(text))), text...)
		}
	}
	return string(name)
}
