package api

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/strictjson"
)

// How many checks a batch may have.
const (
	maxChecks       = 1000
	maxAtomicChecks = 100
)

// A batch is a body of POST /v1/check/batch.
type batch struct {
	checks  []enforcement.Check
	tenants []string
	atomic  bool
}

// checkBatch is POST /v1/check/batch.
func (a *API) checkBatch(c echo.Context, who caller) error {
	r := c.Request()
	deny, err := checkParameters(r)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := readBody(&body, r, maxBatch); err != nil {
		return err
	}
	b, err := decodeBatch(body.String(), who.key.Operator)
	if err != nil {
		return err
	}
	subjects, faults := b.subjects(who)
	if b.atomic {
		if err := b.checkAtomic(subjects, faults); err != nil {
			return err
		}
	}
	decisions := a.decideBatch(c, b, subjects)
	out := append(make([]byte, 0, 512*len(b.checks)), `{"results":[`...)
	id := requestID(c.Response())
	for i := range b.checks {
		if i > 0 {
			out = append(out, ',')
		}
		if faults[i] != nil {
			out = a.appendProblem(out, asProblem(atTenant(faults[i], "/tenant")), id, "/checks/"+strconv.Itoa(i))
			continue
		}
		d := &decisions[i]
		out = a.appendDecision(out, d, a.decisionStatus(d, deny), true)
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", append(out, "]}"...))
}

// decideBatch has the checks decided whose tenant was found.
func (a *API) decideBatch(c echo.Context, b *batch, subjects []*enforcement.Subject) []enforcement.Decision {
	decisions := make([]enforcement.Decision, len(b.checks))
	items := make([]enforcement.BatchItem, 0, len(b.checks))
	for i := range b.checks {
		if subjects[i] != nil {
			items = append(items, enforcement.BatchItem{Subject: subjects[i], Check: &b.checks[i], Decision: &decisions[i]})
		}
	}
	if len(items) > 0 {
		a.cfg.Decider.DecideBatch(c.Request().Context(), items, b.atomic)
	}
	return decisions
}

// decodeBatch reads a body. An operator key names the tenant of every check.
func decodeBatch(text string, operator bool) (*batch, error) {
	var d strictjson.Decoder
	d.Reset(text, strictjson.MaxDepth)
	b, given := new(batch), false
	for name := range d.Members() {
		switch name {
		case "checks":
			given = true
			b.decodeChecks(&d, operator)
		case "atomic":
			b.atomic = d.Bool()
		default:
			d.Unknown()
		}
	}
	switch {
	case !given:
		d.FailAt("/checks", "is required")
	case len(b.checks) == 0:
		d.FailAt("/checks", "must have at least one check")
	case b.atomic && len(b.checks) > maxAtomicChecks:
		d.FailAt("/checks", "must have at most %d checks with atomic", maxAtomicChecks)
	}
	return b, d.End()
}

func (b *batch) decodeChecks(d *strictjson.Decoder, operator bool) {
	for i := range d.Elements() {
		if i == maxChecks {
			d.FailAt("/checks", "must have at most %d checks", maxChecks)
			return
		}
		var c enforcement.Check
		tenant := decodeCheck(d, &c, nil)
		if tenant == "" && operator {
			d.FailAt("/checks/"+strconv.Itoa(i)+"/tenant", "is required with an operator key")
		}
		b.checks, b.tenants = append(b.checks, c), append(b.tenants, tenant)
	}
}

// subjects finds the tenant of every check, or why there is none.
func (b *batch) subjects(who caller) ([]*enforcement.Subject, []error) {
	subjects, faults := make([]*enforcement.Subject, len(b.checks)), make([]error, len(b.checks))
	for i, ref := range b.tenants {
		subjects[i], faults[i] = who.subject(ref)
	}
	return subjects, faults
}

// checkAtomic holds an atomic batch to one tenant and one mode. Checks of one
// tenant that cannot be asked for have one fault alike, and it refuses all.
func (b *batch) checkAtomic(subjects []*enforcement.Subject, faults []error) error {
	for i := range b.checks {
		at := "/checks/" + strconv.Itoa(i)
		switch {
		case subjects[i] != subjects[0], faults[i] != nil && problem.Of(faults[i]) != problem.Forbidden && b.tenants[i] != b.tenants[0]:
			return malformedAt(at+"/tenant", "must be the same in all checks of an atomic batch")
		case b.checks[i].Mode != b.checks[0].Mode:
			return malformedAt(at+"/mode", "must be the same in all checks of an atomic batch")
		}
	}
	return nil
}
