package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// How many checks a batch may have.
const (
	maxChecks       = 1000
	maxAtomicChecks = 100
)

// A batch is a body of POST /v1/check/batch with its answer: what one batch
// needs and the next can use again.
type batch struct {
	body       bytes.Buffer
	decoder    strictjson.Decoder
	checks     []enforcement.Check
	tenants    []string
	attributes []enforcement.Attribute // of all checks: each has a part
	atomic     bool
	subjects   []*enforcement.Subject
	faults     []error // why a check has no subject
	items      []enforcement.BatchItem
	decisions  []enforcement.Decision // each keeps the room of its slices
	out        []byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// keepBody bounds the bodies whose buffers are used again, in bytes.
const keepBody = 256 << 10

// release forgets what the caller sent and gives b back.
func (b *batch) release() {
	if b.body.Cap() > keepBody {
		return
	}
	clear(b.checks)
	clear(b.tenants)
	clear(b.attributes)
	clear(b.subjects)
	clear(b.faults)
	clear(b.items)
	for i := range b.decisions {
		b.decisions[i].Reset()
	}
	b.decoder.Reset("", 0)
	batches.Put(b)
}

// checkBatch is POST /v1/check/batch.
func (a *API) checkBatch(w http.ResponseWriter, r *http.Request, who caller) error {
	deny, err := checkParameters(r)
	if err != nil {
		return err
	}
	b := batches.Get().(*batch)
	defer b.release()
	b.body.Reset()
	if err := readBody(&b.body, r, maxBatch); err != nil {
		return err
	}
	if err := b.decode(b.body.String(), who.key.Operator); err != nil {
		return err
	}
	b.find(who)
	if b.atomic {
		if err := b.checkAtomic(); err != nil {
			return err
		}
	}
	if err := a.decideBatch(r.Context(), b); err != nil {
		return err
	}
	a.writeBatch(w, b, deny)
	return nil
}

// decideBatch has the checks decided whose tenant was found, within slots that
// are free again before the answer is written. A batch of several tenants waits
// in the queue of the first one.
func (a *API) decideBatch(ctx context.Context, b *batch) error {
	if len(b.items) == 0 {
		return nil
	}
	weight := batchWeight(len(b.items))
	if err := a.admit(ctx, b.items[0].Subject, weight); err != nil {
		return err
	}
	defer a.cfg.Admission.Leave(weight)
	a.cfg.Decider.DecideBatch(ctx, b.items, b.atomic)
	return nil
}

// batchChunk is how many bytes of a batch's answer are written at once.
const batchChunk = 32 << 10

// writeBatch answers with one result for each check. An answer of several
// chunks is written as it is made.
func (a *API) writeBatch(w http.ResponseWriter, b *batch, deny int) {
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	out, whole := append(b.out[:0], `{"results":[`...), true
	for i := range b.checks {
		if i > 0 {
			out = append(out, ',')
		}
		if b.faults[i] != nil {
			out = a.appendProblem(out, asProblem(atTenant(b.faults[i], "/tenant")), requestID(w), "/checks/"+strconv.Itoa(i))
		} else {
			d := &b.decisions[i]
			out = a.appendDecision(out, d, a.decisionStatus(d, deny), true)
		}
		if len(out) >= batchChunk {
			if _, err := w.Write(out); err != nil {
				break // the client is gone
			}
			out, whole = out[:0], false
		}
	}
	out = append(out, "]}"...)
	if whole {
		h["Content-Length"] = []string{strconv.Itoa(len(out))}
	}
	_, _ = w.Write(out) // the client is gone if this fails
	b.out = out
}

// decode reads a body. An operator key names the tenant of every check.
func (b *batch) decode(text string, operator bool) error {
	d, given := &b.decoder, false
	d.Reset(text, strictjson.MaxDepth)
	b.checks, b.tenants, b.attributes, b.atomic = b.checks[:0], b.tenants[:0], b.attributes[:0], false
	for name := range d.Members() {
		switch name {
		case "checks":
			given = true
			b.decodeChecks(d, operator)
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
	return d.End()
}

func (b *batch) decodeChecks(d *strictjson.Decoder, operator bool) {
	for i := range d.Elements() {
		if i == maxChecks {
			d.FailAt("/checks", "must have at most %d checks", maxChecks)
			return
		}
		at := len(b.attributes)
		if cap(b.attributes)-at < enforcement.MaxAttributes { // earlier checks keep their parts of the former array
			b.attributes, at = make([]enforcement.Attribute, 0, max(8*enforcement.MaxAttributes, 2*cap(b.attributes))), 0
		}
		b.checks = append(b.checks, enforcement.Check{})
		c := &b.checks[i]
		tenant := decodeCheck(d, c, b.attributes[at:at:at+enforcement.MaxAttributes])
		b.attributes = b.attributes[:at+len(c.Attributes)]
		if tenant == "" && operator {
			d.FailAt("/checks/"+strconv.Itoa(i)+"/tenant", "is required with an operator key")
		}
		b.tenants = append(b.tenants, tenant)
	}
}

// find finds the tenant of every check, or why there is none, and makes items
// of those that have one.
func (b *batch) find(who caller) {
	n := len(b.checks)
	b.subjects, b.faults = slices.Grow(b.subjects[:0], n)[:n], slices.Grow(b.faults[:0], n)[:n]
	b.decisions, b.items = slices.Grow(b.decisions[:0], n)[:n], b.items[:0]
	for i, ref := range b.tenants {
		if i > 0 && ref == b.tenants[i-1] {
			b.subjects[i], b.faults[i] = b.subjects[i-1], b.faults[i-1]
		} else {
			b.subjects[i], b.faults[i] = who.subject(ref)
		}
		if b.subjects[i] != nil {
			b.items = append(b.items, enforcement.BatchItem{Subject: b.subjects[i], Check: &b.checks[i], Decision: &b.decisions[i]})
		}
	}
}

// checkAtomic holds an atomic batch to one tenant and one mode. Checks of one
// tenant that cannot be asked for have one fault alike, and it refuses all.
func (b *batch) checkAtomic() error {
	for i := range b.checks {
		at := "/checks/" + strconv.Itoa(i)
		switch {
		case b.subjects[i] != b.subjects[0], b.faults[i] != nil && problem.Of(b.faults[i]) != problem.Forbidden && b.tenants[i] != b.tenants[0]:
			return malformedAt(at+"/tenant", "must be the same in all checks of an atomic batch")
		case b.checks[i].Mode != b.checks[0].Mode:
			return malformedAt(at+"/mode", "must be the same in all checks of an atomic batch")
		}
	}
	return nil
}
