package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

type refundCommand struct {
	writing
	Decision       string `arg:"" help:"The decision_id of a check that was sent with --refundable."`
	Tenant         string `setting:"false" placeholder:"SLUG" help:"The tenant. A key of a tenant stands for its tenant."`
	IdempotencyKey string `setting:"false" placeholder:"KEY" help:"A value of your own for this refund. A repetition with it gets the same answer; without it, a second refund is an error."`
}

// Run refunds a check.
func (r refundCommand) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	c.idempotencyKey = r.IdempotencyKey
	a, sent, err := c.write(ctx, http.MethodPost, ofOwner(path("checks", r.Decision, "refund"), r.Tenant), nil, "")
	if err != nil || !sent {
		return err
	}
	return c.output.rows(t, a.body, "limits",
		Column{"POLICY", "policy"}, Column{"LIMIT", "limit"}, Column{"CHARGED", "charged"}, Column{"REFUNDED", "refunded"})
}

// ofOwner adds the tenant of a check or reservation to the query of a path. It adds nothing if
// tenant is "".
func ofOwner(path, tenant string) string {
	if tenant == "" {
		return path
	}
	return path + "?" + url.Values{"tenant": {tenant}}.Encode()
}

type reservationsCommand struct {
	List    reservationsList    `cmd:"" help:"List the outstanding reservations of a tenant in the order in which they end: headgate reservations list acme"`
	Create  reservationsCreate  `cmd:"" help:"Charge an estimate for a time: headgate reservations create acme POST /v1/chat --ttl 1m --id job-1 --cost 4"`
	Get     reservationsGet     `cmd:"" help:"Show a reservation, until 10 minutes after its end."`
	Settle  reservationsSettle  `cmd:"" help:"Replace the estimate by the real cost: headgate reservations settle acme job-1 --cost 3"`
	Extend  reservationsExtend  `cmd:"" help:"Let a reservation end later: headgate reservations extend acme job-1 --ttl 5m"`
	Release reservationsRelease `cmd:"" help:"Give the whole cost of a reservation back: headgate reservations release acme job-1"`
}

type reservationsList struct {
	Connection
	ofTenant
	Limit int `setting:"false" help:"How many rows. Default: all."`
}

// Run lists reservations.
func (l reservationsList) Run(ctx context.Context, t Terminal) error {
	return l.rows(ctx, t, path("reservations"), map[string]string{"tenant": l.Tenant}, l.Limit, []Column{
		{"ID", "id"}, {"STATE", "state"}, {"CREATED", "created_at"}, {"EXPIRES", "expires_at"}, {"DECISION", "decision_id"}, {"LIMITS", "limits"},
	})
}

// reservationID has the arguments that name a reservation.
type reservationID struct {
	ofTenant
	ID string `arg:"" help:"The reservation's id, from headgate reservations list."`
}

func (r reservationID) path(action ...string) string {
	return ofOwner(path(append([]string{"reservations", r.ID}, action...)...), r.Tenant)
}

// reservation prints a reservation and the limits that it charged.
func (c *client) reservation(a answer) error {
	v, err := decode(a.body)
	if err != nil {
		return err
	}
	return c.output.print(c.terminal, a.body, func(w io.Writer) error {
		ends := "ends at " + cell(lookUp(v, "expires_at"))
		if ended := lookUp(v, "ended_at"); ended != nil {
			ends = "ended at " + cell(ended)
		}
		fmt.Fprintf(w, "%s: %s, %s (tenant %s, decision %s)\n",
			cell(lookUp(v, "id")), cell(lookUp(v, "state")), ends, cell(lookUp(v, "tenant")), cell(lookUp(v, "decision_id")))
		limits, _ := lookUp(v, "limits").([]any)
		if len(limits) == 0 {
			return nil
		}
		return writeTable(w, limits, []Column{{"POLICY", "policy"}, {"LIMIT", "limit"}, {"ESTIMATE", "estimate"}, {"COST", "cost"}})
	})
}

type reservationsCreate struct {
	writing
	ofTenant
	Method     string            `arg:"" help:"Method of the request, such as POST."`
	Path       string            `arg:"" help:"Path of the request, such as /v1/chat."`
	TTL        time.Duration     `required:"" name:"ttl" setting:"false" placeholder:"1m" help:"The time until the reservation ends by itself."`
	ID         string            `setting:"false" placeholder:"ID" help:"A value of your own that names the reservation. Default: the id of the decision."`
	Attributes map[string]string `name:"attribute" short:"a" setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"An attribute of the request; may be repeated."`
	Cost       *int64            `setting:"false" help:"The estimated cost. Default: the cost of each policy, which is 1 unless it states another."`
	Mode       string            `default:"enforce" enum:"enforce,force" setting:"false" help:"force reserves without denying."`

	IdempotencyKey string `setting:"false" placeholder:"KEY" help:"Without --id: a repetition with this value gets the same reservation and charges nothing."`
}

// Help returns the text that --help shows after the flags.
func (reservationsCreate) Help() string {
	return "Ends with 0 if the reservation is made, and with 10 if the request is denied."
}

// Run makes a reservation and prints the decision.
func (n reservationsCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	body := request{Method: n.Method, Path: n.Path, Tenant: n.Tenant, Attributes: n.Attributes, Cost: n.Cost}.body(n.Mode)
	body["ttl_ms"] = n.TTL.Milliseconds()
	body.set("id", n.ID)
	c.idempotencyKey = n.IdempotencyKey
	a, sent, err := c.write(ctx, http.MethodPost, path("reservations"), body, "")
	if !sent {
		if v, unreadable := decode(a.body); unreadable != nil || lookUp(v, "kind") != "denial" {
			return err
		}
	}
	return c.decision(a.body, "")
}

type reservationsGet struct {
	Connection
	reservationID
}

// Run shows a reservation.
func (g reservationsGet) Run(ctx context.Context, t Terminal) error {
	c, err := g.client(t)
	if err != nil {
		return err
	}
	a, err := c.get(ctx, g.path(), nil)
	if err != nil {
		return err
	}
	return c.reservation(a)
}

// changeReservation sends a request that changes a reservation, and prints the changed
// reservation. idempotencyKey is "" if the request has none.
func (w writing) changeReservation(ctx context.Context, t Terminal, method, path string, body any, idempotencyKey string) error {
	c, err := w.client(t)
	if err != nil {
		return err
	}
	c.idempotencyKey = idempotencyKey
	a, sent, err := c.write(ctx, method, path, body, "")
	if err != nil || !sent {
		return err
	}
	return c.reservation(a)
}

type reservationsSettle struct {
	writing
	reservationID
	Cost       *int64            `setting:"false" help:"The real cost. Default: policies that read no attribute keep the estimate."`
	Attributes map[string]string `name:"attribute" short:"a" setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"An attribute that carries a real cost, for policies with cost_from; may be repeated."`
}

// Run settles a reservation.
func (s reservationsSettle) Run(ctx context.Context, t Terminal) error {
	body := object{}
	if s.Cost != nil {
		body["cost"] = *s.Cost
	}
	if len(s.Attributes) > 0 {
		body["attributes"] = s.Attributes
	}
	return s.changeReservation(ctx, t, http.MethodPost, s.path("settle"), body, "")
}

type reservationsExtend struct {
	writing
	reservationID
	TTL time.Duration `required:"" name:"ttl" setting:"false" placeholder:"5m" help:"The time from now until the reservation ends by itself."`

	IdempotencyKey string `setting:"false" placeholder:"KEY" help:"A value of your own for this extension. A repetition with it does not move the end again."`
}

// Run extends a reservation.
func (e reservationsExtend) Run(ctx context.Context, t Terminal) error {
	return e.changeReservation(ctx, t, http.MethodPost, e.path("extend"), object{"ttl_ms": e.TTL.Milliseconds()}, e.IdempotencyKey)
}

type reservationsRelease struct {
	writing
	reservationID
}

// Run releases a reservation.
func (r reservationsRelease) Run(ctx context.Context, t Terminal) error {
	return r.changeReservation(ctx, t, http.MethodDelete, r.path(), nil, "")
}
