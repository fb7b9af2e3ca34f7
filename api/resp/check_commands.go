package resp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// A pending holds one check of a batch and its decision. Its memory is reused for later checks.
type pending struct {
	check      enforcement.Check
	decision   enforcement.Decision
	attributes [enforcement.MaxAttributes]enforcement.Attribute
	tenant     string
	nearLimit  bool // NEAR_LIMIT 1 was sent; the reply then has the threshold that is reached
	reply      func(*replies, *pending)
	fault      string // the error reply, if the check cannot be decided; otherwise ""
}

// begin sets the defaults of a check.
func (p *pending) begin() {
	p.check = enforcement.Check{Cost: 1, DefaultCost: true, Attributes: p.attributes[:0], Wire: enforcement.WireRESP}
	p.tenant, p.nearLimit, p.fault = "", false, ""
}

// A batch holds the checks of a pipeline that wait for a decision. Batches come from a pool, so that an idle connection holds none.
type batch struct {
	pending []*pending // the first "used" elements wait for a decision; the others are memory for further checks
	used    int
	items   []enforcement.BatchItem
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// A reader parses the arguments of a command and stores them in p.
type reader func(p *pending, args []string) error

// add adds a check to the batch.
func (c *conn) add(read reader, args []string) {
	if c.batch == nil {
		c.batch = batches.Get().(*batch)
	}
	b := c.batch
	if b.used == len(b.pending) {
		b.pending = append(b.pending, new(pending))
	}
	p := b.pending[b.used]
	b.used++
	p.begin()
	if err := read(p, args); err != nil {
		p.fault = "ERR " + err.Error()
	}
}

// decide decides the batch and appends one reply for each check.
func (c *conn) decide() {
	b := c.batch
	if b == nil {
		return
	}
	err := c.decideBatch(b)
	for _, p := range b.pending[:b.used] {
		if p.fault == "" && err == nil {
			p.undecided()
		}
		switch {
		case p.fault != "":
			c.fail(p.fault)
		case err != nil:
			c.fail(errorText(api.Problem(err)))
		default:
			p.reply(&c.replies, p)
		}
		p.decision.Reset()
		p.check = enforcement.Check{}
		clear(p.attributes[:])
	}
	clear(b.items)
	b.used, b.items, c.batch = 0, b.items[:0], nil
	batches.Put(b)
}

// undecided sets the fault of a check if the check was not decided because of its idempotency key,
// or because the tenant has too many refundable checks.
func (p *pending) undecided() {
	if err := api.KeyRefused(&p.decision); err != nil {
		p.fault = errorText(api.Problem(err))
	}
}

var errNoKey = problem.New(problem.Unauthenticated, "Authentication required: send AUTH with an API key that has the scope check")

// caller returns the API, and the caller with the API key that the connection sent.
func (c *conn) caller() (*api.API, api.Caller, error) {
	if c.token == "" {
		return nil, api.Caller{}, errNoKey
	}
	decider := c.server.api.Load() // not nil, because AUTH has already checked the token with an API
	who, err := decider.CallerOf(c.token, c.from)
	return decider, who, err
}

// decideBatch decides those checks of b whose arguments are valid. It first finds their tenants. If
// it returns an error, decide sends this error as the reply to each of them.
func (c *conn) decideBatch(b *batch) error {
	decider, who, err := c.caller()
	if err != nil {
		return err
	}
	for _, p := range b.pending[:b.used] {
		if p.fault != "" {
			continue
		}
		subject, err := who.Subject(p.tenant, &p.check)
		if err != nil {
			p.fault = errorText(api.Problem(err))
			continue
		}
		b.items = append(b.items, enforcement.BatchItem{Subject: subject, Check: &p.check, Decision: &p.decision})
	}
	return decider.Decide(c.context(), b.items, false)
}

// An option parses the value of an option of a command and stores it in p.
type option func(p *pending, value string) error

// optionNames holds the names of the options of all commands, in upper case. An attribute cannot
// have one of these names. So if a command does not take an option, the option is an error and not
// an attribute.
var optionNames = []string{"METHOD", "COST", "MODE", "IDEMPOTENCY", "LEASE", "TTL", "REFUNDABLE", "ID", "NEAR_LIMIT"}

// The options of HEADGATE.CHECK.
var checkOptions = map[string]option{
	"METHOD": (*pending).setMethod, "COST": (*pending).setCost, "MODE": (*pending).setMode, "IDEMPOTENCY": (*pending).setKey,
	"LEASE": (*pending).setLease, "TTL": (*pending).setLeaseTTL, "REFUNDABLE": (*pending).setRefundable,
	"NEAR_LIMIT": (*pending).setNearLimit,
}

// readCheck parses the arguments of HEADGATE.CHECK: tenant path [attribute value]... and options.
// The tenant "-" stands for the tenant that the API key belongs to.
func readCheck(p *pending, args []string) error {
	if len(args) < 2 || len(args)%2 != 0 {
		return errors.New("use HEADGATE.CHECK tenant path [attribute value]... [METHOD method] [COST n] " +
			"[MODE enforce|peek|force|take_up_to] [IDEMPOTENCY key] [LEASE id] [TTL ms] [REFUNDABLE 0|1] [NEAR_LIMIT 0|1]")
	}
	p.reply = replyCheck
	return p.read(args, checkOptions)
}

// read parses a tenant, a path, attributes, and options, and stores them in p.
func (p *pending) read(args []string, options map[string]option) error {
	p.tenant = tenantOf(args[0])
	if args[1] != "" {
		if err := p.check.SetPath(args[1]); err != nil {
			return fmt.Errorf("path %w", err)
		}
	}
	return p.pairs(args[2:], options)
}

// tenantOf converts the tenant of a command to the form that the API accepts. For "-", it returns
// "", which stands for the tenant of the API key.
func tenantOf(name string) string {
	if name == "-" {
		return ""
	}
	return name
}

// pairs reads attributes and options.
func (p *pending) pairs(rest []string, options map[string]option) error {
	given := 0 // bit set of the options read so far; the bit is the index in optionNames
	for ; len(rest) > 0; rest = rest[2:] {
		bit := slices.Index(optionNames, rest[0])
		if bit < 0 {
			if err := p.attribute(rest[0], rest[1]); err != nil {
				return err
			}
			continue
		}
		set := options[rest[0]]
		switch {
		case set == nil:
			return fmt.Errorf("%s is not an option of this command, and attributes cannot have this name", rest[0])
		case given&(1<<bit) != 0:
			return fmt.Errorf("%s is given twice", rest[0])
		}
		given |= 1 << bit
		if err := set(p, rest[1]); err != nil {
			return fmt.Errorf("%s %w", rest[0], err)
		}
	}
	return nil
}

// attribute adds an attribute to the check.
func (p *pending) attribute(name, value string) error {
	for _, a := range p.check.Attributes {
		if a.Name == name {
			return fmt.Errorf("attribute %.64q is given twice", name)
		}
	}
	if err := p.check.AddAttribute(name, value); err != nil {
		return fmt.Errorf("attribute %.64q %w", name, err)
	}
	return nil
}

func (p *pending) setMethod(value string) error { return p.check.SetMethod(value) }

func (p *pending) setCost(value string) (err error) {
	p.check.DefaultCost = false
	p.check.Cost, err = number(value, 0, enforcement.MaxCost)
	return err
}

func (p *pending) setMode(value string) error {
	for _, m := range []enforcement.Mode{enforcement.Enforce, enforcement.Peek, enforcement.Force, enforcement.TakeUpTo} {
		if value == m.String() {
			p.check.Mode = m
			return nil
		}
	}
	return errors.New("must be enforce, peek, force or take_up_to")
}

func (p *pending) setKey(value string) error {
	if value == "" || api.ValidIdempotencyKey(value) != nil {
		return errors.New("must be 1 to 255 visible ASCII characters")
	}
	p.check.IdempotencyKey = value
	return nil
}

func (p *pending) setLease(value string) error { return p.check.SetLeaseID(value) }

func (p *pending) setLeaseTTL(value string) error {
	ms, err := number(value, 1, enforcement.MaxLeaseTTL.Milliseconds())
	p.check.LeaseTTL = time.Duration(ms) * time.Millisecond
	return err
}

func (p *pending) setRefundable(value string) (err error) {
	p.check.Refundable, err = boolean(value)
	return err
}

func (p *pending) setNearLimit(value string) (err error) {
	p.nearLimit, err = boolean(value)
	return err
}

// boolean reads 0 or 1.
func boolean(text string) (bool, error) {
	n, err := number(text, 0, 1)
	return n == 1, err
}

// furtherValues is the number of values that a reply has after the first decisionValues, if further
// returns true for its check.
const furtherValues = 5

// further reports whether a check has an option whose result needs the additional values of the
// reply. The reply to any other check has no additional values, as before these options existed.
func (p *pending) further() bool {
	c := &p.check
	return p.nearLimit || c.IdempotencyKey != "" || c.Lease != "" || c.LeaseTTL != 0 || c.Refundable || c.Mode == enforcement.TakeUpTo
}

// replyCheck appends the reply to HEADGATE.CHECK. docs/redis-protocol.md describes its values.
func replyCheck(r *replies, p *pending) {
	values, d := decisionValues, &p.decision
	if p.further() {
		values += furtherValues
	}
	if p.nearLimit {
		values++
	}
	r.array(values)
	r.decision(d)
	if p.further() {
		r.further(d)
	}
	if p.nearLimit {
		r.integer(int64(d.NearLimit()))
	}
}

// further appends the further values.
func (r *replies) further(d *enforcement.Decision) {
	taken := int64(-1)
	if d.Check.Mode == enforcement.TakeUpTo {
		taken = d.Taken
	}
	r.integer(taken)
	r.integer(flag(d.Idempotency == enforcement.Replayed))
	r.text(d.Lease)
	r.integer(d.LeaseTTL)
	r.integer(d.RefundableUntil / 1000)
}

// decisionValues is the number of values that decision appends.
const decisionValues = 11

// decision appends the first decisionValues values of the reply to HEADGATE.CHECK and
// HEADGATE.RESERVE.
func (r *replies) decision(d *enforcement.Decision) {
	r.integer(flag(d.Allowed))
	name, quota, remaining, reset := "", int64(-1), int64(-1), int64(-1)
	if l := api.Tightest(d); l != nil {
		name, quota, remaining, reset = l.Limit.HeaderName, l.Quota(), l.Remaining, l.ResetAfter
	}
	r.integer(quota)
	r.integer(remaining)
	r.integer(d.RetryAfter)
	r.integer(reset)
	r.text(string(d.Reason))
	r.text(name)
	r.line('$', api.DecisionIDLength)
	r.out = append(api.AppendDecisionID(r.out, d), "\r\n"...)
	r.integer(flag(d.Degraded))
	r.integer(d.Delay)
	r.integer(flag(d.ServeCheap))
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// throttlePath is the beginning of the path of each check that CL.THROTTLE makes.
const throttlePath = "/throttle/"

// readThrottle parses the arguments of CL.THROTTLE: key max_burst count period [quantity]. The part of the key before
// the first colon selects the policy: the path of the check is /throttle/ and this part. For a key without a colon, the
// path is /throttle/default. The whole key is the attribute key. readThrottle validates the numbers, but the decision
// uses the numbers of the plan.
func readThrottle(p *pending, args []string) error {
	if len(args) < 4 || len(args) > 5 {
		return errors.New("use CL.THROTTLE key max_burst count period [quantity]")
	}
	p.reply = replyThrottle
	name, _, named := strings.Cut(args[0], ":")
	if !named {
		name = "default"
	}
	if err := p.check.SetPath(throttlePath + name); err != nil {
		return fmt.Errorf("key %w", err)
	}
	// A client can be the source of the key, and must not choose the path of another policy.
	if segment, under := strings.CutPrefix(p.check.Path, throttlePath); !under || segment == "" || strings.ContainsAny(name, "/?#") {
		return errors.New("key must begin with a name that is one segment of a path: not empty, not only dots, and without /, ? and #")
	}
	if err := p.check.SetMethod(throttleCommand); err != nil {
		return err
	}
	if err := p.check.AddAttribute("key", args[0]); err != nil {
		return fmt.Errorf("key %w", err)
	}
	for i, name := range []string{"max_burst", "count", "period"} {
		if _, err := number(args[i+1], int64(min(i, 1)), enforcement.MaxCost); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
	}
	if len(args) == 5 {
		if err := p.setCost(args[4]); err != nil {
			return fmt.Errorf("quantity %w", err)
		}
	}
	return nil
}

// replyThrottle appends the reply that redis-cell has: limited, limit, remaining, retry_after, and reset. The times are
// in seconds and rounded up. retry_after is -1 for an allowed check, and for a check that can never pass.
func replyThrottle(r *replies, p *pending) {
	d := &p.decision
	limit, remaining, reset, retry := int64(0), int64(0), int64(0), int64(-1)
	if l := api.Tightest(d); l != nil {
		limit, remaining, reset = l.Capacity(), l.Remaining, seconds(l.ResetAfter)
	}
	if !d.Allowed && d.RetryAfter != enforcement.Never {
		retry = max(1, seconds(d.RetryAfter))
	}
	r.array(5)
	r.integer(flag(!d.Allowed))
	r.integer(limit)
	r.integer(remaining)
	r.integer(retry)
	r.integer(reset)
}

func seconds(ms int64) int64 { return (ms + 999) / 1000 }
