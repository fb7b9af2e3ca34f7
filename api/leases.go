package api

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/strictjson"
)

// decodeLease decodes the member lease of a check. withTTL says whether the lease may have a
// ttl_ms.
func decodeLease(d *strictjson.Decoder, c *enforcement.Check, withTTL bool) {
	for name := range d.Members() {
		switch {
		case name == "id":
			if text := d.Text(); d.Err() == nil {
				failed(d, c.SetLeaseID(text))
			}
		case name == "ttl_ms" && withTTL:
			c.LeaseTTL = time.Duration(d.Int(1, enforcement.MaxLeaseTTL.Milliseconds())) * time.Millisecond
		default:
			d.Unknown()
		}
	}
}

// releaseLease is POST /v1/leases/release.
func (a *API) releaseLease(w http.ResponseWriter, r *http.Request, who caller) error {
	if a.cfg.Reservations == nil {
		return errNoReservations
	}
	s := scratches.Get().(*scratch)
	defer s.release()
	s.body.Reset()
	held, err := a.readBody(&s.body, r, who, maxBody)
	if err != nil {
		return err
	}
	defer a.freeBody(who, held)
	s.decoder.Reset(s.body.String(), strictjson.MaxDepth)
	tenant := decodeCheckWith(&s.decoder, &s.check, s.attributes[:0], func(d *strictjson.Decoder, name string) {
		if name != "lease" {
			d.Unknown()
			return
		}
		decodeLease(d, &s.check, false)
	})
	if err := s.decoder.End(); err != nil {
		return err
	}
	switch {
	case !s.check.DefaultCost:
		return malformedAt("/cost", "a release takes no cost: it ends the whole lease")
	case s.check.Mode != enforcement.Enforce:
		return malformedAt("/mode", "a release takes no mode")
	}
	subject, units, err := a.ReleaseLease(r.Context(), Caller{who}, tenant, &s.check)
	if err != nil {
		return atTenant(err, "/tenant")
	}
	text, err := encode(LeaseReleased{Tenant: subject.Tenant, Lease: HeldLease{s.check.Lease}, Released: units})
	if err != nil {
		return err
	}
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, typeJSON
	_, _ = w.Write(text) // an error means that the client closed the connection
	return nil
}

// ListLeases is GET /v1/tenants/{tenant}/leases.
func (a *API) ListLeases(ctx context.Context, r ListLeasesRequestObject) (ListLeasesResponseObject, error) {
	p := r.Params
	maps.DeleteFunc(p.Key, func(_, value string) bool { return value == "" }) // empty: not sent
	u, err := a.cfg.Usage.Key(ctx, r.Tenant, p.Policy, p.Key)
	if err != nil {
		return nil, asParameterFault(err)
	}
	key := &u.Policies[0].Keys[0]
	out := ListLeases200JSONResponse{
		Tenant: u.Tenant, Policy: p.Policy, Key: key.Attributes(), At: Instant{u.At}, Limits: []LeaseLimit{}, Leases: []Lease{},
	}
	for i := range key.Limits {
		l := &key.Limits[i]
		if l.Limit.Algorithm != enforcement.Concurrency {
			continue
		}
		out.Limits = append(out.Limits, LeaseLimit{Limit: l.Limit.Name, Quota: l.Limit.Quota, Used: l.Used})
		for _, h := range l.Holders {
			out.Leases = append(out.Leases, Lease{Limit: l.Limit.Name, Id: h.Lease, Places: h.Places, ExpiresAt: Instant{h.Until}})
		}
	}
	return out, nil
}

// RevokeLease is POST /v1/tenants/{tenant}/leases/revoke.
func (a *API) RevokeLease(ctx context.Context, r RevokeLeaseRequestObject) (RevokeLeaseResponseObject, error) {
	b := r.Body
	tenant, released, err := a.cfg.Usage.RevokeLease(ctx, r.Tenant, b.Policy, b.Key, b.Lease.Id, b.Reason)
	return RevokeLease200JSONResponse{Tenant: tenant, Lease: HeldLease{b.Lease.Id}, Released: released}, err
}
