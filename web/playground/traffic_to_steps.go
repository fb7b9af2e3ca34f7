package playground

import (
	"slices"
	"strconv"

	"github.com/headgate/headgate/enforcement"
)

// The operations of the steps of a scenario that the playground plays.
const (
	opCheck    = "check"
	opPeek     = "peek"
	opGrant    = "grant"
	opReserve  = "reserve"
	opSettle   = "settle"
	opExtend   = "extend"
	opGiveBack = "give_back"
)

// A call is one step of the traffic: requests that arrive at the same time, a request that is sent
// again, or what happens to a reservation.
type call struct {
	at     int64 // milliseconds from the start
	op     string
	n      int64 // requests
	number int   // of the request, from 1; 0 if requests have no numbers
	again  bool
}

// numbered reports whether each request is a call of its own with a number.
func (g *playForm) numbered() bool { return g.reservation.made || g.again.how != never }

// calls returns the calls of the traffic by their time. Calls after the duration are not played.
func (g *playForm) calls() (list []call) {
	if !g.numbered() {
		for _, a := range g.arrivals {
			list = append(list, call{at: a.at, op: opCheck, n: a.n})
		}
		return list
	}
	number, first := 0, call{op: opCheck, n: 1}
	if g.reservation.made {
		first.op = opReserve
	}
	for _, a := range g.arrivals {
		for range a.n {
			number++
			first.at, first.number = a.at, number
			list = append(list, first)
			if g.again.how != never {
				again := first
				again.at, again.again = a.at+g.again.after.Milliseconds(), true
				list = append(list, again)
			}
			list = append(list, g.reservation.changes(first)...)
		}
	}
	list = slices.DeleteFunc(list, func(c call) bool { return c.at >= g.duration.Milliseconds() })
	slices.SortStableFunc(list, func(a, b call) int { return int(a.at - b.at) })
	return list
}

// changes returns the calls that change the reservation that the call first makes.
func (r *reservationForm) changes(first call) (list []call) {
	if !r.made {
		return nil
	}
	if r.extend > 0 {
		list = append(list, call{at: first.at + r.extend.Milliseconds(), op: opExtend, number: first.number})
	}
	if r.after > 0 {
		list = append(list, call{at: first.at + r.after.Milliseconds(), op: r.finish, number: first.number})
	}
	return list
}

// request reports whether the call is a request, and no change of a reservation.
func (c *call) request() bool { return c.op == opCheck || c.op == opReserve }

// step returns the step of a scenario that plays the call on the algorithm a.
func (g *playForm) step(c *call, a enforcement.Algorithm) wireStep {
	s := wireStep{At: c.at}
	if c.op != opCheck {
		s.Op = c.op
	}
	if c.request() && g.cost != 1 {
		s.Cost = &g.cost
	}
	if c.n > 1 {
		s.Repeat = c.n
	}
	switch {
	case g.reservation.made:
		s.Reservation = g.reservationID(c)
	case g.again.how == withKey:
		s.IdempotencyKey = "k" + strconv.Itoa(c.number)
	}
	switch {
	case c.op == opReserve, c.op == opExtend:
		s.TTL = g.reservation.life.Milliseconds()
	case c.op == opSettle:
		s.Cost = g.reservation.cost
	case c.op == opCheck && a == enforcement.Concurrency:
		s.TTL = g.hold.Milliseconds()
	}
	return s
}

// reservationID returns the ID of the reservation that the call makes or changes. A request that is
// sent again without a key makes another reservation.
func (g *playForm) reservationID(c *call) string {
	id := "r" + strconv.Itoa(c.number)
	if c.again && g.again.how == withoutKey {
		id += "-again"
	}
	return id
}
