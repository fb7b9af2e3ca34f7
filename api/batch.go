package api

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// The maximum number of checks in a batch.
const (
	maxChecks       = 1000
	maxAtomicChecks = 100
)

// A batch holds the decoded body of one POST /v1/check/batch and the buffers for its response.
// Batches are pooled.
type batch struct {
	body       bytes.Buffer
	decoder    strictjson.Decoder
	checks     []enforcement.Check
	tenants    []string
	attributes []enforcement.Attribute // attributes of all checks; each check uses a part of this slice
	atomic     bool
	subjects   []*enforcement.Subject
	faults     []error // for each check: the error if its tenant was not found or the key may not send it, or nil
	items      []enforcement.BatchItem
	decisions  []enforcement.Decision // their slices keep their capacity for the next batch
	out        []byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// keepBody is the maximum size of a body buffer that is returned to the pool, in bytes.
const keepBody = 256 << 10

// release clears the references to the request and returns b to the pool. A batch with a larger
// buffer than keepBody is not returned.
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
	deny, key, err := checkParameters(r)
	if err != nil {
		return err
	}
	b := batches.Get().(*batch)
	defer b.release()
	b.body.Reset()
	held, err := a.readBody(&b.body, r, who, maxBatch)
	if err != nil {
		return err
	}
	defer a.freeBody(who, held)
	if err := b.decode(b.body.String(), who.key.Operator); err != nil {
		return err
	}
	b.find(who)
	for i, s := range b.subjects {
		if s == nil {
			continue
		}
		if err := complete(s, &b.checks[i], i); err != nil {
			return err
		}
	}
	if b.atomic {
		if err := b.checkAtomic(); err != nil {
			return err
		}
	}
	b.setKeys(key)
	if err := a.Decide(r.Context(), b.items, b.atomic); err != nil {
		return err
	}
	if b.atomic && len(b.items) > 0 {
		if err := keyRefused(b.items[0].Decision); err != nil {
			return err
		}
	}
	a.writeBatch(w, b, deny)
	return nil
}

// batchChunk is the number of bytes after which writeBatch sends a part of the response.
const batchChunk = 32 << 10

// writeBatch writes one result for each check. A long response is sent in chunks, without a
// Content-Length.
func (a *API) writeBatch(w http.ResponseWriter, b *batch, deny int) {
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = typeJSON, noStore
	if b.replayed() {
		h[replayedHeader] = isReplayed
	}
	out, whole := append(b.out[:0], `{"results":[`...), true
	for i := range b.checks {
		if i > 0 {
			out = append(out, ',')
		}
		d := &b.decisions[i]
		if fault := b.fault(i); fault != nil {
			out = a.appendProblem(out, asProblem(fault), requestID(w), "/checks/"+strconv.Itoa(i))
		} else {
			out = a.appendDecision(out, d, a.decisionStatus(d, deny), true, "")
		}
		if len(out) >= batchChunk {
			if _, err := w.Write(out); err != nil {
				break // the client closed the connection
			}
			out, whole = out[:0], false
		}
	}
	out = append(out, `],"request_id":`...)
	out = appendString(out, requestID(w))
	out = append(out, '}')
	if whole {
		h["Content-Length"] = []string{strconv.Itoa(len(out))}
	}
	_, _ = w.Write(out) // an error means that the client closed the connection
	b.out = out
}

// decode decodes the JSON body of a batch. operator says that the caller is the operator; then
// every check must name its tenant.
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
		if cap(b.attributes)-at < enforcement.MaxAttributes { // allocate a new array; earlier checks keep their parts of the old one
			b.attributes, at = make([]enforcement.Attribute, 0, max(8*enforcement.MaxAttributes, 2*cap(b.attributes))), 0
		}
		b.checks = append(b.checks, enforcement.Check{})
		c := &b.checks[i]
		tenant := decodeCheck(d, c, b.attributes[at:at:at+enforcement.MaxAttributes])
		c.Wire = enforcement.WireBatch
		b.attributes = b.attributes[:at+len(c.Attributes)]
		if tenant == "" && operator {
			d.FailAt("/checks/"+strconv.Itoa(i)+"/tenant", tenantRequired)
		}
		b.tenants = append(b.tenants, tenant)
	}
}

// find looks up the tenant of each check. It adds an item for the limiter for each check whose
// tenant is found, and stores an error for the others.
func (b *batch) find(who caller) {
	n := len(b.checks)
	b.subjects, b.faults = slices.Grow(b.subjects[:0], n)[:n], slices.Grow(b.faults[:0], n)[:n]
	b.decisions, b.items = slices.Grow(b.decisions[:0], n)[:n], b.items[:0]
	for i, ref := range b.tenants {
		if i > 0 && ref == b.tenants[i-1] {
			b.subjects[i], b.faults[i] = b.subjects[i-1], b.faults[i-1]
			if b.subjects[i] != nil {
				b.faults[i] = nil // the previous check may have an error that does not apply to this check
			}
		} else {
			b.subjects[i], b.faults[i] = who.subject(ref)
		}
		if b.subjects[i] != nil {
			b.faults[i] = who.within(b.subjects[i], &b.checks[i])
		}
		if b.faults[i] == nil {
			b.items = append(b.items, enforcement.BatchItem{Subject: b.subjects[i], Check: &b.checks[i], Decision: &b.decisions[i]})
		}
	}
}

// fault returns the reason why check i was not decided, or nil if it was.
func (b *batch) fault(i int) error {
	if b.faults[i] != nil {
		return atTenant(b.faults[i], "/tenant")
	}
	return keyRefused(&b.decisions[i])
}

// setKeys gives each check of a batch its own idempotency key, made from the Idempotency-Key of the
// batch. In an atomic batch, only the first check gets a key.
func (b *batch) setKeys(key string) {
	switch {
	case key == "":
	case b.atomic:
		if len(b.items) > 0 {
			b.items[0].Check.IdempotencyKey = key + "\natomic"
		}
	default:
		for i := range b.checks {
			b.checks[i].IdempotencyKey = key + "\n" + strconv.Itoa(i)
		}
	}
}

// replayed reports whether all results of this batch were results of an earlier batch with the same
// Idempotency-Key.
func (b *batch) replayed() bool {
	for i := range b.checks {
		if b.faults[i] != nil || b.decisions[i].Idempotency != enforcement.Replayed {
			return false
		}
	}
	return true
}

// checkAtomic returns an error if the checks of an atomic batch differ in tenant, mode or lease, or
// if one of them has an option that an atomic batch does not allow. If all checks name the same
// unknown tenant, checkAtomic returns nil: the result of each check then says that the tenant is
// unknown.
func (b *batch) checkAtomic() error {
	for i := range b.checks {
		at := "/checks/" + strconv.Itoa(i)
		switch {
		case b.subjects[i] != b.subjects[0], b.faults[i] != nil && problem.Of(b.faults[i]) != problem.Forbidden && b.tenants[i] != b.tenants[0]:
			return malformedAt(at+"/tenant", "must be the same in all checks of an atomic batch")
		case b.subjects[i] != nil && b.faults[i] != nil:
			return b.faults[i]
		case b.checks[i].Mode != b.checks[0].Mode:
			return malformedAt(at+"/mode", "must be the same in all checks of an atomic batch")
		case b.checks[i].Mode == enforcement.TakeUpTo:
			return malformedAt(at+"/mode", "must not be take_up_to in an atomic batch, which charges whole costs: send the checks without atomic")
		case b.checks[i].Refundable:
			return malformedAt(at+"/refundable", "must be false in an atomic batch: send the checks without atomic, or a reservation")
		case b.checks[i].Lease != b.checks[0].Lease || b.checks[i].LeaseTTL != b.checks[0].LeaseTTL:
			return malformedAt(at+"/lease", "must be the same in all checks of an atomic batch, which has one lease")
		}
	}
	return nil
}
