package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

const (
	reservationIDForm = "must be 1 to 64 letters, digits and . _ ~ -, and begin with a letter or a digit"
	reservationLife   = "must be a whole number of milliseconds from 1000 to 86400000"
)

// errReservationExists is the error if the ID of a new reservation belongs to another reservation.
var errReservationExists = problem.WithCode(problem.Conflict, "reservation_exists",
	"the tenant has a reservation with this id or Idempotency-Key, which another request made: send a new one; nothing was charged")

// errTooManyReservations is the error if the tenant already has the maximum number of reservations.
var errTooManyReservations = &problem.Problem{
	Kind: problem.Unavailable, Code: "too_many_reservations", RetryAfter: 1,
	Message: "the tenant has too many outstanding reservations: settle some; this one was not made, and nothing was charged",
}

// validReservationID reports whether a text matches the schema ReservationId in openapi.yaml.
func validReservationID(id string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return id != "" && len(id) <= enforcement.MaxReservationID && strings.Trim(id, letters+"._~-") == "" &&
		strings.ContainsRune(letters, rune(id[0]))
}

// reserve is POST /v1/reservations.
func (a *API) reserve(w http.ResponseWriter, r *http.Request, who caller) error {
	if a.cfg.Reservations == nil {
		return errNoReservations
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	s := scratches.Get().(*scratch)
	defer s.release()
	tenant, err := a.readReservation(s, r, who, key)
	defer a.freeBody(who, s.held)
	if err != nil {
		return err
	}
	subject, err := Caller{who}.Subject(tenant, &s.check)
	if err != nil {
		return atTenant(err, "/tenant")
	}
	if a.admit(r.Context(), subject, 1) != nil {
		overloaded(&s.decision, subject, &s.check)
	} else if err := a.decideReservation(r.Context(), subject, &s.check, &s.decision); err != nil {
		return err
	}
	return a.writeReserved(w, s)
}

// errNoReservations is the error if the node has no service for reservations.
var errNoReservations = problem.New(problem.Unavailable, "this node does not keep reservations")

// decideReservation decides a check that makes a reservation. The caller must hold a slot of the
// admission gate; decideReservation frees it.
func (a *API) decideReservation(ctx context.Context, s *enforcement.Subject, c *enforcement.Check, d *enforcement.Decision) error {
	defer a.cfg.Admission.Leave(1)
	a.cfg.Reservations.Decide(ctx, s, c, d)
	switch d.Idempotency {
	case enforcement.KeyReused:
		return errReservationExists
	case enforcement.TooManyReservations:
		return errTooManyReservations
	}
	return nil
}

// reservationID returns the ID of a reservation for a call with an Idempotency-Key and without an
// ID. It derives the ID from the key, so that a repeated call finds the same reservation. A call
// with an ID needs no key for that.
func reservationID(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return "key-" + base64.RawURLEncoding.EncodeToString(sum[:24])
}

// readReservation decodes the body of a reservation into s.check, and returns the tenant that the
// body names. key is the Idempotency-Key. The caller must free the s.held bytes of the body.
func (a *API) readReservation(s *scratch, r *http.Request, who caller, key string) (tenant string, err error) {
	s.body.Reset()
	if s.held, err = a.readBody(&s.body, r, who, maxBody); err != nil {
		return "", err
	}
	wanted := new(enforcement.CheckReservation)
	s.decoder.Reset(s.body.String(), strictjson.MaxDepth)
	tenant = decodeCheckWith(&s.decoder, &s.check, s.attributes[:0], func(d *strictjson.Decoder, name string) {
		switch name {
		case "id":
			if wanted.ID = strings.Clone(d.Text()); !validReservationID(wanted.ID) {
				d.Fail(reservationIDForm)
			}
		case "ttl_ms":
			wanted.Life = time.Duration(d.Int(enforcement.MinReservationLife.Milliseconds(), enforcement.MaxReservationLife.Milliseconds())) *
				time.Millisecond
		case "lease":
			d.Fail("a reservation takes no lease: it holds places of concurrency limits under its own id, until its end")
		default:
			d.Unknown()
		}
	})
	if err := s.decoder.End(); err != nil {
		return "", err
	}
	if wanted.ID == "" {
		wanted.ID = reservationID(key)
	}
	s.check.Reservation = wanted
	return tenant, nil
}

// writeReserved writes the response to a request that makes a reservation. The response contains
// s.decision and the reservation.
func (a *API) writeReserved(w http.ResponseWriter, s *scratch) error {
	d := &s.decision
	status := a.decisionStatus(d, 0)
	s.out = a.appendDecision(s.out[:0], d, status, false, requestID(w))
	if d.Allowed {
		status = http.StatusCreated
		if d.Reservation != nil {
			text, err := json.Marshal(showReservation(d.Subject, d.Reservation))
			if err != nil {
				return err
			}
			s.out = append(bytes.TrimSuffix(s.out, []byte("}")), `,"reservation":`...)
			s.out = append(append(s.out, text...), '}')
		}
	}
	h, size := w.Header(), len(s.out)
	s.out = a.cfg.Headers.write(h, d, s.out, false)
	h["Content-Type"] = typeJSON
	if status != http.StatusCreated {
		h["Content-Type"] = typeProblem
	}
	h["Cache-Control"] = noStore
	delete(h, "Content-Length")
	if d.Idempotency == enforcement.Replayed {
		h[replayedHeader] = isReplayed
	}
	w.WriteHeader(status)
	_, _ = w.Write(s.out[:size]) // an error means that the client closed the connection
	return nil
}

func showReservation(s *enforcement.Subject, r *enforcement.Reserved) Reservation {
	out := Reservation{
		Id: r.ID, Tenant: s.Tenant, State: ReservationState(r.State), DecisionId: r.Decision,
		CreatedAt: Instant{enforcement.Instant(r.CreatedAt)}, ExpiresAt: Instant{enforcement.Instant(r.ExpiresAt)},
		Limits: make([]ReservedLimit, len(r.Limits)),
	}
	if r.EndedAt != 0 {
		out.EndedAt = Instant{enforcement.Instant(r.EndedAt)}
	}
	for i, l := range r.Limits {
		out.Limits[i] = ReservedLimit{Policy: l.Policy, Limit: l.Limit, Estimate: l.Estimate, Cost: l.Cost}
	}
	return out
}

// owner returns the tenant of a reservation. It is the tenant that the parameter tenant names, or
// the tenant of the caller's key.
func (c caller) owner(tenant string) (*enforcement.Subject, error) {
	if tenant == "" && c.key.Operator {
		return nil, malformedAt("tenant", tenantRequired)
	}
	s, err := c.subject(tenant)
	if err != nil {
		return nil, atTenant(err, "tenant")
	}
	return s, nil
}

// ListReservations is GET /v1/reservations.
func (a *API) ListReservations(ctx context.Context, r ListReservationsRequestObject) (ListReservationsResponseObject, error) {
	s, err := callerOf(ctx).owner(r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	p := r.Params
	out, link, err := list("/v1/reservations", filters("tenant", s.Tenant), p.Limit, p.Cursor,
		func(after string, limit int) ([]enforcement.ReservationPlace, error) {
			return a.cfg.Reservations.Reservations(ctx, s, after, limit)
		},
		func(r enforcement.ReservationPlace) string { return r.Place },
		func(r enforcement.ReservationPlace) (Reservation, error) { return showReservation(s, &r.Reserved), nil })
	return ListReservations200JSONResponse{ReservationPage(out), ListReservations200ResponseHeaders{link}}, err
}

// GetReservation is GET /v1/reservations/{reservation}.
func (a *API) GetReservation(ctx context.Context, r GetReservationRequestObject) (GetReservationResponseObject, error) {
	s, err := callerOf(ctx).owner(r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	found, err := a.cfg.Reservations.Reservation(ctx, s, r.Reservation)
	if err != nil {
		return nil, err
	}
	return GetReservation200JSONResponse(showReservation(s, found)), nil
}

// changeReservation changes a reservation. If the call repeats an earlier call, it sets the header
// Idempotent-Replayed.
func (a *API) changeReservation(ctx context.Context, tenant string, change *enforcement.ReservationChange) (Reservation, error) {
	who := callerOf(ctx)
	s, err := who.owner(tenant)
	if err != nil {
		return Reservation{}, err
	}
	changed, replayed, err := a.change(ctx, who, s, change)
	if err != nil {
		return Reservation{}, err
	}
	if replayed {
		markReplayed(ctx)
	}
	return showReservation(s, changed), nil
}

// change changes a reservation of the tenant s for the caller who. replayed is set if an earlier
// call already made this change.
func (a *API) change(ctx context.Context, who caller, s *enforcement.Subject, change *enforcement.ReservationChange) (
	r *enforcement.Reserved, replayed bool, err error,
) {
	real := enforcement.Check{Attributes: change.Attributes}
	if change.Cost != nil {
		real.Cost = *change.Cost
	}
	if err := who.within(s, &real); err != nil {
		return nil, false, err
	}
	if name, fault := s.CostFault(&real); name != "" {
		return nil, false, malformedAt("/attributes/"+problem.Escape(name), fault)
	}
	return a.cfg.Reservations.ChangeReservation(ctx, s, change)
}

// ReleaseReservation is DELETE /v1/reservations/{reservation}.
func (a *API) ReleaseReservation(ctx context.Context, r ReleaseReservationRequestObject) (ReleaseReservationResponseObject, error) {
	out, err := a.changeReservation(ctx, r.Params.Tenant, &enforcement.ReservationChange{
		ID: r.Reservation, State: enforcement.ReservationReleased,
	})
	return ReleaseReservation200JSONResponse(out), err
}

// SettleReservation is POST /v1/reservations/{reservation}/settle.
func (a *API) SettleReservation(ctx context.Context, r SettleReservationRequestObject) (SettleReservationResponseObject, error) {
	change := &enforcement.ReservationChange{ID: r.Reservation, State: enforcement.ReservationSettled, Cost: r.Body.Cost}
	if c := r.Body.Cost; c != nil && (*c < 0 || *c > enforcement.MaxCost) {
		return nil, malformedAt("/cost", "must be from 0 to 2147483647")
	}
	var check enforcement.Check
	for name, value := range r.Body.Attributes {
		if err := check.AddAttribute(name, value); err != nil {
			return nil, malformedAt("/attributes/"+problem.Escape(name), err.Error())
		}
	}
	change.Attributes = check.Attributes
	out, err := a.changeReservation(ctx, r.Params.Tenant, change)
	return SettleReservation200JSONResponse(out), err
}

// ExtendReservation is POST /v1/reservations/{reservation}/extend.
func (a *API) ExtendReservation(ctx context.Context, r ExtendReservationRequestObject) (ExtendReservationResponseObject, error) {
	life := time.Duration(r.Body.TtlMs) * time.Millisecond
	if r.Body.TtlMs < 0 || r.Body.TtlMs > enforcement.MaxReservationLife.Milliseconds() || life < enforcement.MinReservationLife {
		return nil, malformedAt("/ttl_ms", reservationLife)
	}
	if err := validKey(r.Params.IdempotencyKey); err != nil {
		return nil, err
	}
	out, err := a.changeReservation(ctx, r.Params.Tenant, &enforcement.ReservationChange{
		ID: r.Reservation, State: enforcement.ReservationActive, Life: life, IdempotencyKey: r.Params.IdempotencyKey,
	})
	return ExtendReservation200JSONResponse(out), err
}
