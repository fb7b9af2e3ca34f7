package playground

import (
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/web/views"
)

// The values of the field request: what a request does with its cost.
const (
	charges  = "charge"
	reserves = "reserve"
)

// The values of the field again: how a request is sent a second time.
const (
	never      = "never"
	withKey    = "key"
	withoutKey = "no_key"
)

var requestOptions = []views.Option{
	{Value: charges, Label: "Charges its cost"},
	{Value: reserves, Label: "Reserves its cost"},
}

var finishOptions = []views.Option{
	{Value: opSettle, Label: "Is settled"},
	{Value: opGiveBack, Label: "Is given back"},
}

var expiryOptions = []views.Option{
	{Value: string(enforcement.KeepExpired), Label: "Keeps its cost"},
	{Value: string(enforcement.RefundExpired), Label: "Gives it back"},
}

var againOptions = []views.Option{
	{Value: never, Label: "Never"},
	{Value: withKey, Label: "With an idempotency key"},
	{Value: withoutKey, Label: "Without a key"},
}

// A reservationForm has the fields about the reservation that each request makes.
type reservationForm struct {
	made   bool // requests make reservations
	life   time.Duration
	extend time.Duration // after which it is extended by life; 0: never
	finish string        // opSettle or opGiveBack
	after  time.Duration // after which finish happens; 0: never
	cost   *int64        // with which it is settled; nil: the estimate
	expiry enforcement.ReservationExpiry
}

// A repetitionForm has the fields about a second sending of each request.
type repetitionForm struct {
	how   string // never, withKey or withoutKey
	after time.Duration
}

// callFields are the fields about reservations and repetitions. Those from lifeField on are only for
// reservations.
var callFields = []string{
	"request", "again", "again_after", "ttl", "extend_after", "finish", "finish_after", "real_cost", "reservation_expiry",
}

const lifeField = 3

// readReservation reads the fields about reservations.
func (g *playForm) readReservation() {
	r := &g.reservation
	r.made = g.oneOf("request", requestOptions) == reserves
	r.life = g.length("ttl")
	if least, most := enforcement.MinReservationLife, enforcement.MaxReservationLife; r.life != 0 && (r.life < least || r.life > most) {
		g.faults.Add("/ttl", "must be from %s to %s", views.Elapsed(least), views.Elapsed(most))
	}
	r.extend, r.after = g.optionalLength("extend_after"), g.optionalLength("finish_after")
	r.finish = g.oneOf("finish", finishOptions)
	r.expiry = enforcement.ReservationExpiry(g.oneOf("reservation_expiry", expiryOptions))
	if g.text["real_cost"] != "" {
		cost := g.number("real_cost", 0, enforcement.MaxCost)
		r.cost = &cost
	}
	for _, field := range callFields[lifeField:] {
		if !r.made && g.text[field] != playDefaults[field] {
			g.faults.Add("/"+field, "is for requests that reserve their cost")
		}
	}
	switch {
	case r.cost != nil && (r.finish != opSettle || r.after == 0):
		g.faults.Add("/real_cost", "must be empty, unless reservations are settled")
	case r.made && g.hold > 0:
		g.faults.Add("/hold", "must be empty, because a place is held until the reservation ends")
	}
}

// readRepetition reads the fields about a second sending.
func (g *playForm) readRepetition() {
	g.again.how, g.again.after = g.oneOf("again", againOptions), g.length("again_after")
	if g.again.how == never && g.text["again_after"] != playDefaults["again_after"] {
		g.faults.Add("/again_after", "is for requests that are sent again")
	}
}

// oneOf returns the value of a field with options.
func (g *playForm) oneOf(field string, options []views.Option) string {
	value := g.text[field]
	if !slices.ContainsFunc(options, func(o views.Option) bool { return o.Value == value }) {
		g.faults.Add("/"+field, "must be one of the list")
	}
	return value
}

// optionalLength is like length. An empty field stands for 0.
func (g *playForm) optionalLength(field string) time.Duration {
	if g.text[field] == "" {
		return 0
	}
	return g.length(field)
}

// callsForm fills in the fields about reservations and repetitions.
func (g *playForm) callsForm(v *views.Playground) {
	in := func(name, label, hint string) views.Input {
		return views.OptionalInput(name, label, g.text[name], hint)
	}
	pick := func(name, label string, options []views.Option) views.Select {
		return views.Select{Name: name, Label: label, Value: g.text[name], Options: options}
	}
	v.Request = pick("request", "Each request", requestOptions)
	v.Life = in("ttl", "A reservation ends after", "1s to 24h, if nothing ends it before.")
	v.Extend = in("extend_after", "It is extended after", "Then it ends that much later. Empty: never.")
	v.Finish, v.FinishAfter = pick("finish", "At its end it", finishOptions), in("finish_after", "After", "Empty: never.")
	v.RealCost = in("real_cost", "Real cost", "With which it is settled. Empty: the estimate.")
	v.Expiry = pick("reservation_expiry", "If nothing ends it, it", expiryOptions)
	v.Again, v.AgainAfter = pick("again", "Each request is sent again", againOptions), in("again_after", "Again after", "")
	for _, field := range callFields {
		v.CallsOpen = v.CallsOpen || g.text[field] != playDefaults[field]
	}
}
