package api

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// errNotKept is the error if there is no recorded decision with the ID in the request. The error is
// the same if the ID is unknown, if the record has expired or was not part of the sample, and if
// the decision belongs to another tenant. So a caller cannot find out which IDs other tenants have.
var errNotKept = problem.New(problem.NotFound,
	"no decision with this id is recorded: denials are recorded for 24 hours, up to 100 per second and node, "+
		"and 100,000 in all; of allowed requests, a sample is recorded if the tenant has sample_allowed")

// explain serves POST /v1/explain. The request has the body of a check. The response contains the
// response that this check would get, and the reasons for it. An explanation charges nothing and is
// not counted.
func (a *API) explain(w http.ResponseWriter, r *http.Request, who caller) error {
	s := scratches.Get().(*scratch)
	defer s.release()
	if _, ok := r.Header[idempotencyKeyHeader]; ok {
		return malformedAt(idempotencyKeyHeader, "an explanation charges nothing, so it takes no key")
	}
	subject, err := a.readCheck(s, r, who)
	defer a.freeBody(who, s.held)
	if err != nil {
		return err
	}
	var x enforcement.Explanation
	a.cfg.Decider.Explain(r.Context(), subject, &s.check, &x)
	if s.check.Mode <= enforcement.Peek { // other modes decide differently: force is never denied, and take_up_to takes less than the cost
		x.Decision.Check = &s.check
	}
	status := a.decisionStatus(&x.Decision, 0)
	s.out = append(s.out[:0], `{"decision":`...)
	s.out = a.appendDecision(s.out, &x.Decision, status, false, requestID(w))
	rest, err := encode(showReasons(&x, status))
	if err != nil {
		return err
	}
	rest[0] = ',' // replaces the opening brace, so that the members continue the JSON object of the decision
	s.out = append(s.out, rest...)
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, typeJSON
	_, _ = w.Write(s.out) // an error means that the client closed the connection
	return nil
}

// encode returns the JSON form of v without HTML escapes for <, > and &, like appendDecision.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// wireReasons holds the members that follow the decision in the response to POST /v1/explain.
type wireReasons struct {
	Status   int          `json:"status"`
	Route    string       `json:"route"`
	PassesAt *string      `json:"passes_at"` // null if waiting does not help
	List     *wireListed  `json:"list,omitempty"`
	Policies []wirePolicy `json:"policies"`
}

type wireListed struct {
	ID        string   `json:"id"`
	List      ListName `json:"list"`
	Attribute string   `json:"attribute"`
	Value     string   `json:"value"`
	Reason    string   `json:"reason,omitempty"`
	ExpiresAt *Instant `json:"expires_at,omitempty"`
}

type wirePolicy struct {
	Policy      string                  `json:"policy"`
	Mode        enforcement.PolicyMode  `json:"mode"`
	Consistency enforcement.Consistency `json:"consistency"`
	Matches     bool                    `json:"matches"`
	Applies     bool                    `json:"applies"`
	Why         enforcement.Why         `json:"why"`
	Detail      string                  `json:"detail"`
	Attribute   string                  `json:"attribute,omitempty"`
	ReplacedBy  string                  `json:"replaced_by,omitempty"`
	Override    *wireOverride           `json:"override,omitempty"`
	Block       *wireBlock              `json:"block,omitempty"`
	Limits      []wireLimitNow          `json:"limits"`
}

type wireOverride struct {
	ID        string          `json:"id"`
	Factor    json.Number     `json:"factor,omitempty"`
	Limits    []OverrideLimit `json:"limits,omitempty"`
	ExpiresAt Instant         `json:"expires_at"`
}

type wireBlock struct {
	ID        string  `json:"id"`
	Reason    string  `json:"reason,omitempty"`
	ExpiresAt Instant `json:"expires_at"`
}

type wireLimitNow struct {
	Limit        string `json:"limit"`
	Algorithm    string `json:"algorithm"`
	Quota        int64  `json:"quota"`
	RolledOver   int64  `json:"rolled_over,omitempty"`
	Burst        *int64 `json:"burst,omitempty"`
	WindowMS     int64  `json:"window_ms"`
	Remaining    int64  `json:"remaining"`
	ResetAfterMS int64  `json:"reset_after_ms"`

	LeasedElsewhere int64          `json:"leased_elsewhere,omitempty"`
	Grants          []wireGrantNow `json:"grants,omitempty"`
}

func showReasons(x *enforcement.Explanation, status int) wireReasons {
	d := &x.Decision
	out := wireReasons{Status: status, Route: d.Route, Policies: make([]wirePolicy, len(x.Policies))}
	if x.PassesAt != enforcement.Never {
		at := enforcement.Instant(x.PassesAt).Format(enforcement.InstantLayout)
		out.PassesAt = &at
	}
	if e := d.List; e != nil {
		list := exceptions.Allow
		if d.Reason == enforcement.ReasonDeniedByList {
			list = exceptions.Deny
		}
		out.List = &wireListed{ID: e.ID, List: ListName(list), Attribute: e.Attribute, Value: e.Value, Reason: e.Reason}
		if e.Until != 0 {
			out.List.ExpiresAt = &Instant{enforcement.Instant(e.Until)}
		}
	}
	for i := range x.Policies {
		out.Policies[i] = showExplained(&x.Policies[i], d)
	}
	return out
}

func showExplained(p *enforcement.PolicyExplanation, d *enforcement.Decision) wirePolicy {
	out := wirePolicy{
		Policy: p.Rule.Policy, Mode: p.Rule.Mode, Consistency: p.Rule.Consistency, Matches: p.Matches, Applies: p.Applies, Why: p.Why,
		Detail: p.Because(d), Attribute: p.Attribute, ReplacedBy: p.ReplacedBy, Limits: make([]wireLimitNow, len(p.Limits)),
	}
	if o := p.Override; o != nil {
		out.Override = &wireOverride{ID: o.ID, ExpiresAt: Instant{enforcement.Instant(o.Until)}}
		out.Override.Factor, out.Override.Limits = showNumbers(o.Factor, o.Limits)
	}
	if b := p.Block; b != nil {
		out.Block = &wireBlock{ID: b.ID, Reason: b.Reason, ExpiresAt: Instant{enforcement.Instant(b.Until)}}
	}
	for i, now := range p.Limits {
		l := now.Limit
		out.Limits[i] = wireLimitNow{
			Limit: l.Name, Algorithm: l.Algorithm.String(), Quota: l.Quota + now.RolledOver, RolledOver: now.RolledOver, WindowMS: now.WindowMS,
			Remaining: now.Remaining, ResetAfterMS: now.ResetAfter, LeasedElsewhere: now.LeasedElsewhere,
			Grants: showGrantStates(now.Grants),
		}
		if l.Algorithm.Bucket() {
			burst := l.Capacity()
			out.Limits[i].Burst = &burst
		}
	}
	return out
}
