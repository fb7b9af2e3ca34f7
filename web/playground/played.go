package playground

import (
	"fmt"
	"strconv"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/web/views"
)

// A played is the result of the simulation for one algorithm.
type played struct {
	form    *playForm
	limit   enforcement.Limit
	answers []playedAnswer // by time; without repetitions that got the first answer
	left    []views.LanePoint
	calls   []views.LaneCall // only of requests that have numbers

	reservations []*playedReservation
	repeated     int64 // requests that got the answer of an earlier one
	twice        int64 // requests that were allowed again: without a key, or with one that was no longer known
}

type playedAnswer struct {
	arrival
	number, allowed, remaining, reset int64  // allowed are the requests within the limit
	back                              int64  // units that the end of the reservation gave back; below 0 if it charged more
	delay                             int64  // longest delay of the allowed requests, in milliseconds
	retry                             *int64 // nil: never
}

// units returns how many units the requests were charged in the end.
func (a *playedAnswer) units(g *playForm) int64 { return a.allowed*g.cost - a.back }

// A playedReservation is a reservation that a request made.
type playedReservation struct {
	id      string
	answer  int   // index of the answer to the request
	until   int64 // in milliseconds from the start
	ended   string
	charged bool // the request was within the limit
}

// A stepAnswer is the answer of the simulation to one step.
type stepAnswer struct {
	At          int64  `json:"at_ms"`
	Allowed     int64  `json:"allowed_count"`
	Over        int64  `json:"over_count"`
	Delay       int64  `json:"delay_ms"`
	Replayed    bool   `json:"replayed"`
	Reservation string `json:"reservation"`
	Problem     string `json:"problem"`
	Limits      []struct {
		Remaining int64  `json:"remaining"`
		Charged   int64  `json:"charged"` // by the reservation that the step ended
		Reset     int64  `json:"reset_after_ms"`
		Retry     *int64 `json:"retry_after_ms"`
	} `json:"limits"`
}

func newPlayed(g *playForm, a enforcement.Algorithm) *played {
	return &played{form: g, limit: g.limit(a)}
}

// add adds the answer to a call.
func (p *played) add(c *call, s *stepAnswer) {
	if !c.request() {
		p.change(c, s)
		return
	}
	words, row := laneWords[p.form.mode], views.LaneCall{At: c.at, Call: c.words()}
	if s.Replayed {
		p.repeated++
		row.Answer = "The first answer again"
		p.calls = append(p.calls, row)
		return
	}
	l, within := &s.Limits[0], s.Allowed-s.Over
	if s.Over > 0 {
		s.Delay = 0 // the request is over the limit, and its delay is not that of an allowed one
	}
	a := playedAnswer{
		arrival: arrival{c.at, c.n}, number: int64(c.number), allowed: within, remaining: l.Remaining, reset: l.Reset, retry: l.Retry,
		delay: p.delay(c.n, within, s.Delay, l.Reset),
	}
	if c.again && within > 0 && p.allowed(a.number) {
		p.twice++
	}
	p.answers = append(p.answers, a)
	if s.Reservation != "" {
		p.reservations = append(p.reservations, &playedReservation{
			id: p.form.reservationID(c), answer: len(p.answers) - 1, until: c.at + p.form.reservation.life.Milliseconds(), charged: within > 0,
		})
	}
	if !p.form.numbered() {
		return
	}
	row.Answer, row.Left = words.PassedColumn, views.Count(l.Remaining).Exact
	if within == 0 {
		row.Answer, row.Again = words.DidColumn, passesIn(l.Retry)
	}
	row.Waits = waits(a.delay)
	p.calls = append(p.calls, row)
}

// allowed reports whether the first request with a number was within the limit.
func (p *played) allowed(number int64) bool {
	for i := range p.answers {
		if p.answers[i].number == number {
			return p.answers[i].allowed > 0
		}
	}
	return false
}

// delay returns the longest delay of the allowed requests of n at the same time. told is the delay of
// the last request, if that request was allowed. If it was denied, delay computes the result for a
// leaky bucket: its queue drains in reset milliseconds, and the last allowed request waits for all
// requests before it.
func (p *played) delay(n, allowed, told, reset int64) int64 {
	if p.limit.Algorithm != enforcement.LeakyBucket || allowed == 0 || allowed == n {
		return told
	}
	return max(0, reset-p.form.cost*p.form.window.Milliseconds()/max(p.form.quota, 1))
}

// change adds the answer to a call that changes a reservation. If the request was denied, there is no
// reservation, and change adds nothing.
func (p *played) change(c *call, s *stepAnswer) {
	r := p.reservation(p.form.reservationID(c))
	if r == nil {
		return
	}
	row := views.LaneCall{At: c.at, Call: c.words(), Left: views.Count(s.Limits[0].Remaining).Exact, Answer: "Too late"}
	f := &p.form.reservation
	switch {
	case s.Problem != "":
	case c.op == opExtend:
		r.until = c.at + f.life.Milliseconds()
		row.Answer = "Extended to " + lengthWords(r.until)
	case c.op == opGiveBack:
		r.ended, row.Answer = c.op, "Given back"+p.ended(r, s.Limits[0].Charged, 0)
	default:
		cost := p.form.cost
		if f.cost != nil {
			cost = *f.cost
		}
		r.ended, row.Answer = c.op, "Settled with "+views.Count(cost).Exact+p.ended(r, s.Limits[0].Charged, cost)
	}
	p.calls = append(p.calls, row)
}

// ended notes how many units a reservation stays charged after its end. If these are not cost, it returns words
// that say so. The places of a concurrency limit are free after the end, whatever the cost.
func (p *played) ended(r *playedReservation, charged, cost int64) string {
	if !r.charged || p.limit.Algorithm == enforcement.Concurrency {
		return ""
	}
	p.giveBack(r, p.form.cost-charged)
	if charged == cost {
		return ""
	}
	return "; stays charged with " + views.Count(charged).Exact
}

// giveBack notes that the end of a reservation gave units back.
func (p *played) giveBack(r *playedReservation, units int64) {
	if r.charged {
		p.answers[r.answer].back = units
	}
}

func (p *played) reservation(id string) *playedReservation {
	for _, r := range p.reservations {
		if r.id == id {
			return r
		}
	}
	return nil
}

// expired is the value of playedReservation.ended if the time of the reservation passed.
const expired = "expired"

// end notes which reservations ended because their time passed.
func (p *played) end() {
	for _, r := range p.reservations {
		if r.ended != "" || r.until >= p.form.duration.Milliseconds() {
			continue
		}
		r.ended = expired
		if p.form.reservation.expiry == enforcement.RefundExpired && p.limit.Algorithm != enforcement.Concurrency {
			p.giveBack(r, p.form.cost)
		}
	}
}

// units returns how many units all requests were charged in the end.
func (p *played) units(g *playForm) (units int64) {
	for i := range p.answers {
		units += p.answers[i].units(g)
	}
	return units
}

// ends returns sentences about the reservations and the repetitions.
func (p *played) ends() (parts []string) {
	count := map[string]int64{}
	for _, r := range p.reservations {
		count[r.ended]++
	}
	if n := int64(len(p.reservations)); n > 0 {
		list := ""
		for _, end := range []struct{ ended, words string }{
			{opSettle, "settled"}, {opGiveBack, "given back"}, {expired, "ended by their time"}, {"", "open at the end"},
		} {
			if k := count[end.ended]; k > 0 {
				list += fmt.Sprintf(", %s %s", views.Count(k).Exact, end.words)
			}
		}
		parts = append(parts, fmt.Sprintf("Reservations: %s%s.", views.Count(n).Exact, list))
	}
	if p.repeated > 0 {
		parts = append(parts, fmt.Sprintf("Repetitions that got the first answer and charged nothing: %s.", views.Count(p.repeated).Exact))
	}
	if p.twice > 0 {
		parts = append(parts, fmt.Sprintf("Requests that were charged twice, because %s: %s.", p.whyTwice(), views.Count(p.twice).Exact))
	}
	return parts
}

// whyTwice returns why requests that were sent again were charged twice.
func (p *played) whyTwice() string {
	switch f := p.form; {
	case f.again.how != withKey:
		return "they were sent again without a key"
	case f.reservation.made:
		return "an id is known until " + views.Elapsed(enforcement.ReservationKept) + " after the end of its reservation"
	}
	return "a key is known for " + views.Elapsed(enforcement.IdempotencyPeriod)
}

// words returns the name of a call with a number.
func (c *call) words() string {
	name := map[string]string{
		opCheck: "Request", opReserve: "Reservation", opExtend: "Extend", opSettle: "Settle", opGiveBack: "Give back",
	}[c.op] + " " + strconv.Itoa(c.number)
	if c.again {
		name += ", again"
	}
	return name
}

// passesIn returns when the next request passes.
func passesIn(retry *int64) string {
	if retry == nil {
		return "never"
	}
	return lengthWords(*retry)
}

// waits returns for how long a request waits, or "".
func waits(ms int64) string {
	if ms == 0 {
		return ""
	}
	return lengthWords(ms)
}
