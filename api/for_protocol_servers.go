package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// A Caller is an API key that may send checks. The servers of other protocols than HTTP use it.
// They must get a new Caller for checks that arrive later, because a key can expire or be revoked.
type Caller struct{ caller }

// CallerOf returns the caller with the token of an API key. Errors: problem.Unauthenticated if the key is not valid;
// problem.Forbidden if the key may not send checks, or may not be used from the address from; problem.Unavailable
// before the first snapshot is loaded.
func (a *API) CallerOf(token string, from netip.Addr) (Caller, error) {
	who, err := a.holder(token, token != "" && len(token) <= maxToken)
	if err == nil {
		err = a.used(who, from)
	}
	if err != nil {
		return Caller{}, err
	}
	return Caller{who}, a.checkGate.authorize(who, "")
}

// IPOf returns the IP address of a connection's peer. It is not valid if the connection has none.
func IPOf(peer net.Addr) netip.Addr {
	if at, ok := peer.(*net.TCPAddr); ok {
		return at.AddrPort().Addr()
	}
	return netip.Addr{}
}

// Operator reports whether the key belongs to the operator. Each check with such a key must name
// its tenant.
func (c Caller) Operator() bool { return c.key.Operator }

// Subject returns the tenant to which the caller sends a check. ref is its slug or ID; "" means the tenant of the
// caller's key. Subject returns an error for a check that POST /v1/check rejects: an unknown or foreign tenant, a
// missing method or path, an attribute that must be a cost but is not, or a cost or mode that the key does not permit.
func (c Caller) Subject(ref string, check *enforcement.Check) (*enforcement.Subject, error) {
	if ref == "" && c.key.Operator {
		return nil, malformedAt("/tenant", tenantRequired)
	}
	s, err := c.subject(ref)
	if err != nil {
		return nil, err
	}
	if err := complete(s, check, -1); err != nil {
		return nil, err
	}
	if check.SentLimit != (enforcement.SentLimit{}) {
		if err := c.sendsLimit(s, check); err != nil {
			return nil, err
		}
	}
	return s, c.within(s, check)
}

// sendsLimit returns an error if a check contains a limit that the caller may not send, or that would have no effect.
func (c Caller) sendsLimit(s *enforcement.Subject, check *enforcement.Check) error {
	if !c.key.Operator {
		return problem.New(problem.Forbidden,
			"limit: only an operator key may replace a limit of the plan, because a tenant could raise its own limit")
	}
	if !s.TakesSentLimit(check, time.Now().UnixMicro()) {
		return malformedAt("limit", "replaces the limits of a policy, and no enforced policy of the plan applies: add one, or remove limit")
	}
	return nil
}

// Decide waits in the admission queue of the first item's tenant, and then decides the items in order. If atomic is
// set, it charges either all items or none. Decide frees its slots before it returns. If too many checks wait on this
// node, it returns problem.Unavailable with the code overloaded, and charges nothing.
func (a *API) Decide(ctx context.Context, items []enforcement.BatchItem, atomic bool) error {
	if len(items) == 0 {
		return nil
	}
	weight := batchWeight(len(items))
	if err := a.admit(ctx, items[0].Subject, weight); err != nil {
		return err
	}
	defer a.cfg.Admission.Leave(weight)
	a.cfg.Decider.DecideBatch(ctx, items, atomic)
	return nil
}

// TryDecide decides the items in order if enough slots are free and no check waits. Otherwise it returns false, and decides nothing.
func (a *API) TryDecide(ctx context.Context, items []enforcement.BatchItem) bool {
	weight := batchWeight(len(items))
	if !a.cfg.Admission.TryEnter(weight) {
		return false
	}
	defer a.cfg.Admission.Leave(weight)
	a.cfg.Decider.DecideBatch(ctx, items, false)
	return true
}

// Reserve decides a check that makes a reservation, as POST /v1/reservations does. key is the
// Idempotency-Key, or "". tenant is the slug or ID of the tenant, as for Caller.Subject. Errors:
// those of Caller.Subject; problem.Conflict if another request made a reservation with this ID or
// key; problem.Unavailable if too many checks wait on this node, or if the tenant has too many
// reservations. If Reserve returns an error, nothing is charged.
func (a *API) Reserve(
	ctx context.Context, who Caller, tenant, key string, check *enforcement.Check, d *enforcement.Decision,
) error {
	if a.cfg.Reservations == nil {
		return errNoReservations
	}
	if check.Reservation.ID == "" {
		check.Reservation.ID = reservationID(key)
	}
	subject, err := who.Subject(tenant, check)
	if err != nil {
		return err
	}
	if err := a.admit(ctx, subject, 1); err != nil {
		return err
	}
	return a.decideReservation(ctx, subject, check, d)
}

// ValidReservationID reports whether a text can be the ID of a reservation.
func ValidReservationID(id string) bool { return validReservationID(id) }

// ValidIdempotencyKey returns an error if key does not have the form of an Idempotency-Key.
func ValidIdempotencyKey(key string) error { return validKey(key) }

// KeyRefused returns the error for a check that was not decided because of its IdempotencyKey, or
// because the tenant has too many refundable checks. It returns nil if the check was decided.
func KeyRefused(d *enforcement.Decision) error { return keyRefused(d) }

// ChangeReservation settles, extends or releases a reservation, as the operations of /v1/reservations/{reservation} do.
// Its errors are those of Engine.ChangeReservation. It also returns an error for an attribute that no policy uses as
// its cost, because such an attribute can be a misspelled option.
func (a *API) ChangeReservation(ctx context.Context, who Caller, tenant string, change *enforcement.ReservationChange) (
	r *enforcement.Reserved, replayed bool, err error,
) {
	s, err := who.ownerOfReservations(a, tenant)
	if err != nil {
		return nil, false, err
	}
	for i := range change.Attributes {
		if name := change.Attributes[i].Name; !s.CostsBy(name) {
			return nil, false, malformedAt("/attributes/"+problem.Escape(name), "is not the cost of a policy of the tenant's plan")
		}
	}
	return a.change(ctx, who.caller, s, change)
}

// Refund refunds the check whose decision has the ID decision, as POST /v1/checks/{decision}/refund
// does. key is the Idempotency-Key, or "". Its errors are those of Engine.RefundCheck.
func (a *API) Refund(ctx context.Context, who Caller, tenant, decision, key string) (
	r *enforcement.RefundedCheck, replayed bool, err error,
) {
	s, err := who.ownerOfReservations(a, tenant)
	if err != nil {
		return nil, false, err
	}
	return a.refund(ctx, who.caller, s, decision, key)
}

// ownerOfReservations returns the tenant whose reservations or checks a call refers to.
func (c Caller) ownerOfReservations(a *API, tenant string) (*enforcement.Subject, error) {
	if a.cfg.Reservations == nil {
		return nil, errNoReservations
	}
	return c.owner(tenant)
}

// ReleaseLease ends the lease of a check, as POST /v1/leases/release does. It ends the lease on all
// concurrency limits that match the check. units is the number of places that the lease held.
func (a *API) ReleaseLease(ctx context.Context, who Caller, tenant string, check *enforcement.Check) (
	s *enforcement.Subject, units int64, err error,
) {
	if a.cfg.Reservations == nil {
		return nil, 0, errNoReservations
	}
	if check.Lease == "" {
		return nil, 0, malformedAt("/lease/id", "is required")
	}
	if s, err = who.Subject(tenant, check); err != nil {
		return nil, 0, err
	}
	if err := a.admit(ctx, s, 1); err != nil {
		return nil, 0, err
	}
	units, err = a.cfg.Reservations.Release(ctx, s, check)
	a.cfg.Admission.Leave(1)
	return s, units, err
}

// DecideForwarded decides the check of a request that a gateway describes, as /v1/forward-auth
// does, and calls use with the decision. The decision is valid only during this call. r is the
// original request: its method, RequestURI, headers and remote address. option returns an option of
// /v1/forward-auth by its name, or "". If an option or a part of the request is invalid, the error
// names it, and nothing is charged.
func (a *API) DecideForwarded(r *http.Request, who Caller, option func(string) string, use func(*enforcement.Decision)) error {
	host := func() (string, error) { return r.Host, nil }
	read := func(s *scratch) error { return s.original(r.Method, r.RequestURI, "method", "path") }
	return a.decideForwarded(r, who, enforcement.WireEnvoyAuthorization, original{option, host, read}, func(s *scratch) { use(&s.decision) })
}

// AppendBody appends the body of the response that POST /v1/check would have for decision d.
func (a *API) AppendBody(b []byte, d *enforcement.Decision) []byte {
	return a.appendDecision(b, d, a.decisionStatus(d, 0), false, "")
}

// Rejection returns the status, the headers, and the body that POST /v1/check returns for a request with the error err.
func (a *API) Rejection(err error) (status int, header http.Header, body []byte) {
	p := asProblem(err)
	id := string(appendUUID(nil, uuidV7()))
	return a.types.of(p).status, http.Header{"Content-Type": typeProblem, "Cache-Control": noStore}, a.appendProblem(nil, p, id, "")
}

// Problem converts an error of the API to a problem, whose message may be shown to the caller.
func Problem(err error) *problem.Problem { return asProblem(err) }

// DecisionIDLength is the number of bytes that AppendDecisionID appends.
const DecisionIDLength = 36

// AppendDecisionID appends the id of a decision in the form of the API to b.
func AppendDecisionID(b []byte, d *enforcement.Decision) []byte { return appendUUID(b, d.ID) }
