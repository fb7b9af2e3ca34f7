package resp

import (
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// answered converts run to the function of a command. If run succeeds, it has appended the reply.
// If run returns an error, the command replies with this error.
func answered(run func(c *conn, args []string) error) func(*conn, []string) {
	return func(c *conn, args []string) {
		err := run(c, args)
		if err == nil {
			return
		}
		p := api.Problem(err)
		text := errorText(p)
		if p.Kind == problem.NotFound {
			text = "NOTFOUND" + strings.TrimPrefix(text, "ERR")
		}
		c.fail(text)
	}
}

// wrong returns the error for an invalid argument.
func wrong(err error) error { return problem.New(problem.Malformed, "%v", err) }

// The options of HEADGATE.RESERVE. TTL is required.
var reserveOptions = map[string]option{
	"METHOD": (*pending).setMethod, "COST": (*pending).setCost, "MODE": (*pending).setMode, "IDEMPOTENCY": (*pending).setKey,
	"ID": (*pending).setReservation, "TTL": (*pending).setLife, "NEAR_LIMIT": (*pending).setNearLimit,
}

func (p *pending) setReservation(value string) error {
	if !api.ValidReservationID(value) {
		return errors.New("must be 1 to 64 letters, digits and . _ ~ -, and begin with a letter or a digit")
	}
	p.check.Reservation.ID = value
	return nil
}

func (p *pending) setLife(value string) (err error) {
	p.check.Reservation.Life, err = life(value)
	return err
}

// life parses the time to live of a reservation, in milliseconds.
func life(text string) (time.Duration, error) {
	ms, err := number(text, enforcement.MinReservationLife.Milliseconds(), enforcement.MaxReservationLife.Milliseconds())
	return time.Duration(ms) * time.Millisecond, err
}

// reserve is HEADGATE.RESERVE tenant path TTL ms [attribute value]... and options.
func (c *conn) reserve(args []string) error {
	if len(args)%2 != 0 {
		return wrong(errors.New("use HEADGATE.RESERVE tenant path TTL ms [attribute value]... [METHOD method] [COST n] " +
			"[MODE enforce|force] [ID id] [IDEMPOTENCY key] [NEAR_LIMIT 0|1]"))
	}
	p := new(pending)
	p.begin()
	p.check.Reservation = new(enforcement.CheckReservation)
	if err := p.read(args, reserveOptions); err != nil {
		return wrong(err)
	}
	if p.check.Reservation.Life == 0 {
		return wrong(errors.New("TTL is required"))
	}
	key := p.check.IdempotencyKey
	p.check.IdempotencyKey = "" // the ID already makes a reservation idempotent
	decider, who, err := c.caller()
	if err == nil {
		err = decider.Reserve(c.context(), who, p.tenant, key, &p.check, &p.decision)
	}
	if err != nil {
		return err
	}
	c.replyReservation(p)
	return nil
}

// replyReservation appends the reply to HEADGATE.RESERVE.
func (r *replies) replyReservation(p *pending) {
	values := decisionValues + 3
	if p.nearLimit {
		values++
	}
	r.array(values)
	r.decision(&p.decision)
	id, until := "", int64(0)
	if v := p.decision.Reservation; v != nil {
		id, until = v.ID, v.ExpiresAt/1000
	}
	r.text(id)
	r.integer(until)
	r.integer(flag(p.decision.Idempotency == enforcement.Replayed))
	if p.nearLimit {
		r.integer(int64(p.decision.NearLimit()))
	}
}

// The options of HEADGATE.SETTLE.
var settleOptions = map[string]option{"COST": (*pending).setCost}

// settle is HEADGATE.SETTLE tenant id [attribute value]... [COST n].
func (c *conn) settle(args []string) error {
	if len(args)%2 != 0 {
		return wrong(errors.New("use HEADGATE.SETTLE tenant id [attribute value]... [COST n]"))
	}
	p := new(pending)
	p.begin()
	if err := p.pairs(args[2:], settleOptions); err != nil {
		return wrong(err)
	}
	change := &enforcement.ReservationChange{ID: args[1], State: enforcement.ReservationSettled, Attributes: p.check.Attributes}
	if !p.check.DefaultCost {
		change.Cost = &p.check.Cost
	}
	return c.change(args[0], change)
}

// extend is HEADGATE.EXTEND tenant id ms [IDEMPOTENCY key].
func (c *conn) extend(args []string) error {
	change := &enforcement.ReservationChange{ID: args[1], State: enforcement.ReservationActive}
	var err error
	if change.Life, err = life(args[2]); err != nil {
		return wrong(errors.New("the time " + err.Error()))
	}
	if change.IdempotencyKey, err = keyOf(args[3:]); err != nil {
		return err
	}
	return c.change(args[0], change)
}

// keyOf parses the arguments of a command whose only option is IDEMPOTENCY, and returns the value
// of this option.
func keyOf(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	var p pending
	if len(args) != 2 || args[0] != "IDEMPOTENCY" {
		return "", wrong(errors.New("the only option is IDEMPOTENCY key"))
	}
	if err := p.setKey(args[1]); err != nil {
		return "", wrong(errors.New("IDEMPOTENCY " + err.Error()))
	}
	return p.check.IdempotencyKey, nil
}

// release is HEADGATE.RELEASE, which has two forms. "tenant id" refunds the whole cost of a
// reservation. "tenant path [attribute value]... [METHOD method] LEASE id" ends a lease.
func (c *conn) release(args []string) error {
	if len(args) > 2 {
		return c.releaseLease(args)
	}
	return c.change(args[0], &enforcement.ReservationChange{ID: args[1], State: enforcement.ReservationReleased})
}

// The options of HEADGATE.RELEASE for a lease. LEASE is required.
var releaseOptions = map[string]option{"METHOD": (*pending).setMethod, "LEASE": (*pending).setLease}

func (c *conn) releaseLease(args []string) error {
	if len(args)%2 != 0 {
		return wrong(errors.New("use HEADGATE.RELEASE tenant id, or HEADGATE.RELEASE tenant path [attribute value]... [METHOD method] LEASE id"))
	}
	p := new(pending)
	p.begin()
	if err := p.read(args, releaseOptions); err != nil {
		return wrong(err)
	}
	if p.check.Lease == "" {
		return wrong(errors.New("LEASE is required"))
	}
	decider, who, err := c.caller()
	if err != nil {
		return err
	}
	_, units, err := decider.ReleaseLease(c.context(), who, p.tenant, &p.check)
	if err != nil {
		return err
	}
	c.integer(units)
	return nil
}

// change changes a reservation. Its reply has the ID, the state, and the end of the reservation,
// whether the call repeats an earlier call, and the limits.
func (c *conn) change(tenant string, change *enforcement.ReservationChange) error {
	decider, who, err := c.caller()
	if err != nil {
		return err
	}
	v, replayed, err := decider.ChangeReservation(c.context(), who, tenantOf(tenant), change)
	if err != nil {
		return err
	}
	end := v.ExpiresAt
	if v.EndedAt != 0 {
		end = v.EndedAt
	}
	c.array(5)
	c.text(v.ID)
	c.text(string(v.State))
	c.integer(end / 1000)
	c.integer(flag(replayed))
	c.array(len(v.Limits))
	for i := range v.Limits {
		l := &v.Limits[i]
		c.limit(l.Policy, l.Limit, l.Estimate, l.Cost)
	}
	return nil
}

// limit appends one limit of a reply: its policy, its name, and two numbers of units.
func (r *replies) limit(policy, name string, first, second int64) {
	r.array(4)
	r.text(policy)
	r.text(name)
	r.integer(first)
	r.integer(second)
}

// refund is HEADGATE.REFUND tenant decision [IDEMPOTENCY key]. The reply has the time of the
// refund, whether the call repeats an earlier call, and for each limit the charged units and the
// refunded units.
func (c *conn) refund(args []string) error {
	key, err := keyOf(args[2:])
	if err != nil {
		return err
	}
	decider, who, err := c.caller()
	if err != nil {
		return err
	}
	v, replayed, err := decider.Refund(c.context(), who, tenantOf(args[0]), args[1], key)
	if err != nil {
		return err
	}
	c.array(3)
	c.integer(v.RefundedAt / 1000)
	c.integer(flag(replayed))
	c.array(len(v.Limits))
	for i := range v.Limits {
		l := &v.Limits[i]
		c.limit(l.Policy, l.Limit, l.Charged, l.Refunded)
	}
	return nil
}
