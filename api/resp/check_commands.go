package resp

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// A pending is one check of a batch, with its decision. The batch uses the memory again for a later check.
type pending struct {
	check      enforcement.Check
	decision   enforcement.Decision
	attributes [enforcement.MaxAttributes]enforcement.Attribute
	tenant     string
	reply      func(*replies, *enforcement.Decision)
	fault      string // the error that is the reply instead of a decision; "" if the check is decided
}

// A batch has the checks of a pipeline that wait for a decision. Batches come from a pool, so that an idle connection needs no
// memory for one.
type batch struct {
	pending []*pending // the first "used" of them wait for a decision; the others are memory for further checks
	used    int
	items   []enforcement.BatchItem
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// A reader reads the arguments of a command into p.
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
	p.check = enforcement.Check{Cost: 1, DefaultCost: true, Attributes: p.attributes[:0], Wire: enforcement.WireRESP}
	p.tenant, p.fault = "", ""
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
		switch {
		case p.fault != "":
			c.fail(p.fault)
		case err != nil:
			c.fail(errorText(api.Problem(err)))
		default:
			p.reply(&c.replies, &p.decision)
		}
		p.decision.Reset()
		p.check = enforcement.Check{}
		clear(p.attributes[:])
	}
	clear(b.items)
	b.used, b.items, c.batch = 0, b.items[:0], nil
	batches.Put(b)
}

var errNoKey = problem.New(problem.Unauthenticated, "Authentication required: send AUTH with an API key that has the scope check")

// decideBatch finds the tenants of the checks that were read without a fault, and decides these
// checks. If it returns an error, decide sends this error as the reply to each of them.
func (c *conn) decideBatch(b *batch) error {
	if c.token == "" {
		return errNoKey
	}
	decider := c.server.api.Load() // the token was checked by the same or an earlier one
	who, err := decider.CallerOf(c.token, c.from)
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

// readCheck reads the arguments of HEADGATE.CHECK: tenant path [attribute value]... [METHOD m] [COST n] [MODE m]. The
// tenant "-" stands for the tenant that the API key belongs to. METHOD, COST and MODE are the names of options, so no
// attribute can have one of these names in upper case.
func readCheck(p *pending, args []string) error {
	if len(args) < 2 || len(args)%2 != 0 {
		return errors.New("use HEADGATE.CHECK tenant path [attribute value]... [METHOD method] [COST n] [MODE enforce|peek|force]")
	}
	if p.reply, p.tenant = replyCheck, args[0]; p.tenant == "-" {
		p.tenant = ""
	}
	if args[1] != "" {
		if err := p.check.SetPath(args[1]); err != nil {
			return fmt.Errorf("path %w", err)
		}
	}
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		if err := p.set(rest[0], rest[1]); err != nil {
			return err
		}
	}
	return nil
}

// set reads one option or attribute.
func (p *pending) set(name, value string) (err error) {
	switch name {
	case "METHOD":
		if err := p.check.SetMethod(value); err != nil {
			return fmt.Errorf("METHOD %w", err)
		}
	case "COST":
		p.check.DefaultCost = false
		p.check.Cost, err = number("COST", value, 0, enforcement.MaxCost)
	case "MODE":
		p.check.Mode, err = mode(value)
	default:
		for _, a := range p.check.Attributes {
			if a.Name == name {
				return fmt.Errorf("attribute %.64q is given twice", name)
			}
		}
		if err := p.check.AddAttribute(name, value); err != nil {
			return fmt.Errorf("attribute %.64q %w", name, err)
		}
	}
	return err
}

func mode(text string) (enforcement.Mode, error) {
	for _, m := range []enforcement.Mode{enforcement.Enforce, enforcement.Peek, enforcement.Force} {
		if text == m.String() {
			return m, nil
		}
	}
	return 0, errors.New("MODE must be enforce, peek or force")
}

// replyCheck appends the reply to HEADGATE.CHECK: eleven values that docs/redis-protocol.md describes.
func replyCheck(r *replies, d *enforcement.Decision) {
	r.array(11)
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

// throttlePath is the beginning of the path of a check that CL.THROTTLE sends.
const throttlePath = "/throttle/"

// readThrottle reads the arguments of CL.THROTTLE: key max_burst count period [quantity]. The text before the first
// colon of the key names the policy: its path is /throttle/ and this name, "default" without a colon. The whole key is
// the attribute key. The numbers are checked, but the plan's numbers decide.
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
	if err := p.check.SetMethod(throttleCommand); err != nil {
		return err
	}
	if err := p.check.AddAttribute("key", args[0]); err != nil {
		return fmt.Errorf("key %w", err)
	}
	for i, name := range []string{"max_burst", "count", "period"} {
		if _, err := number(name, args[i+1], int64(min(i, 1)), enforcement.MaxCost); err != nil {
			return err
		}
	}
	if len(args) == 5 {
		var err error
		p.check.DefaultCost = false
		p.check.Cost, err = number("quantity", args[4], 0, enforcement.MaxCost)
		return err
	}
	return nil
}

// replyThrottle appends the reply of redis-cell: limited, limit, remaining, retry_after, and reset. The times are in
// seconds and rounded up. retry_after is -1 for an allowed check, and for one that can never pass.
func replyThrottle(r *replies, d *enforcement.Decision) {
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
