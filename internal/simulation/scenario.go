package simulation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// Bounds of a scenario.
const (
	// MaxLimits is the maximum number of limits in force at the same time.
	MaxLimits = 32
	// MaxRepeat is the maximum number of repetitions of a step.
	MaxRepeat = 10_000_000
	// maxInstant is the last millisecond of the year 2150, as milliseconds since the epoch. The
	// arithmetic of the limiter is exact up to this time.
	maxInstant = 5_711_817_600_000 - 1
)

// A scenario contains limits, and steps that charge these limits at given times.
type scenario struct {
	id    string
	start int64 // in milliseconds since the epoch
	zone  string
	day   int // billing anchor day; 0 stands for 1
	// calendar is computed from zone and day. It defines the windows of limits with the anchor
	// calendar.
	calendar *enforcement.Calendar
	// mode says what happens to requests over the limits. In mode delay, such a request waits;
	// delay is the time in milliseconds.
	mode   enforcement.PolicyMode
	delay  int64
	expiry enforcement.ReservationExpiry // says what happens to the cost of a reservation that expires
	limits []enforcement.Limit
	steps  []step
}

// An op is the operation of a step.
type op uint8

const (
	check op = iota
	peek
	force
	refund
	reset
	setLimits
	takeUpTo
	acquire
	release
	reserve
	settle
	extend
	giveBack
	grant
)

var opNames = [...]string{
	"check", "peek", "force", "refund", "reset", "set_limits", "take_up_to", "acquire", "release",
	"reserve", "settle", "extend", "give_back", "grant",
}

// modes maps each op up to release to the mode of the request to the limiter. set_limits makes no
// request. An engine plays the other ops; see reservation_and_grant_steps.go.
var modes = [...]enforcement.Mode{
	check: enforcement.Enforce, peek: enforcement.Peek, force: enforcement.Force, refund: enforcement.Refund,
	reset: enforcement.Reset, takeUpTo: enforcement.TakeUpTo, acquire: enforcement.Enforce, release: enforcement.Release,
}

type step struct {
	at     int64 // in milliseconds since the start of the scenario
	op     op
	cost   int64
	repeat int64
	key    string
	lease  string              // name of the lease; if it is "", each repetition has its own lease
	ttl    int64               // time to live of the lease in milliseconds; if it is 0, the lease lives for the window of each limit
	limits []enforcement.Limit // only for set_limits

	idempotencyKey string
	reservation    string // ID of the reservation
	costGiven      bool   // the step has a cost
	limit          string // name of the limit for which a grant is; if it is "", the first limit that can have grants
	units          int64  // of the grant
}

// read decodes and validates a scenario. The error is a *problem.Problem. If there is an error,
// idKnown says whether s.id was read before the error.
func read(line []byte) (s scenario, idKnown bool, err error) {
	var d strictjson.Decoder
	d.Reset(string(line), strictjson.MaxDepth)
	s.mode, s.delay = enforcement.PolicyEnforce, enforcement.DefaultPolicyDelay
	var limits, steps, delay bool
	for name := range d.Members() {
		switch name {
		case "id":
			s.id = d.Text()
			idKnown = d.Err() == nil
		case "start_ms":
			s.start = d.Int(0, maxInstant)
		case "time_zone":
			if s.zone = d.Text(); !problem.ValidTimeZone(s.zone) {
				d.Fail(problem.TimeZoneForm)
			}
		case "billing_anchor_day":
			s.day = int(d.Int(1, 31))
		case "mode":
			s.mode = enforcement.PolicyMode(d.Text())
			if !s.mode.InForce() {
				d.Fail("must be enforce, degrade or delay")
			}
		case "delay_ms":
			s.delay, delay = d.Int(1, enforcement.MaxPolicyDelay), true
		case "reservation_expiry":
			s.expiry = readExpiry(&d)
		case "limits":
			s.limits, limits = readLimits(&d), true
		case "steps":
			s.steps, steps = readSteps(&d), true
		default:
			d.Unknown()
		}
	}
	_ = d.End() // d keeps the first error, which Err returns later
	var unknown error
	if s.calendar, unknown = enforcement.NewCalendar(s.zone, s.day); unknown != nil {
		d.FailAt("/time_zone", problem.TimeZoneForm)
	}
	if delay && s.mode != enforcement.PolicyDelay {
		d.FailAt("/delay_ms", "only mode delay takes a delay")
	}
	if !limits {
		d.FailAt("/limits", "is required")
	}
	if !steps {
		d.FailAt("/steps", "is required")
	}
	s.checkInstants(&d)
	return s, idKnown, d.Err()
}

func readExpiry(d *strictjson.Decoder) enforcement.ReservationExpiry {
	e := enforcement.ReservationExpiry(d.Text())
	if e != enforcement.KeepExpired && e != enforcement.RefundExpired {
		d.Fail("must be keep or refund")
	}
	return e
}

// checkInstants records an error in d if the time of a step is out of range.
func (s *scenario) checkInstants(d *strictjson.Decoder) {
	for i := range s.steps {
		if at := s.steps[i].at; at < -s.start || at > maxInstant-s.start {
			d.FailAt("/steps/"+strconv.Itoa(i)+"/at_ms", "with start_ms it must be from 0 to %d", int64(maxInstant))
			return
		}
	}
}

func readSteps(d *strictjson.Decoder) []step {
	steps := []step{}
	for range d.Elements() {
		steps = append(steps, readStep(d))
	}
	return steps
}

func readStep(d *strictjson.Decoder) step {
	s := step{cost: 1, repeat: 1}
	at := d.Pointer()
	var when, limits bool
	for name := range d.Members() {
		switch name {
		case "at_ms":
			s.at, when = d.Int(-maxInstant, maxInstant), true
		case "op":
			s.op = readOp(d)
		case "cost":
			s.cost, s.costGiven = d.Int(0, enforcement.MaxCost), true
		case "repeat":
			s.repeat = d.Int(1, MaxRepeat)
		case "key":
			s.key = d.Text()
		case "limits":
			s.limits, limits = readLimits(d), true
		case "lease":
			if s.lease = d.Text(); s.lease == "" || len(s.lease) > enforcement.MaxLeaseID {
				d.Fail("must be 1 to %d bytes", enforcement.MaxLeaseID)
			}
		case "ttl_ms":
			s.ttl = d.Int(1, enforcement.MaxLeaseTTL.Milliseconds())
		default:
			s.readEngineMember(d, name)
		}
	}
	if !when {
		d.FailAt(at+"/at_ms", "is required")
	}
	s.validate(d, at, limits)
	s.validateEngineMembers(d, at)
	return s
}

// validate reports members that do not fit the operation of the step. at is the pointer of the
// step. limits says whether the step has the member limits.
func (s *step) validate(d *strictjson.Decoder, at string, limits bool) {
	switch {
	case limits && s.op != setLimits:
		d.FailAt(at+"/limits", "only set_limits takes limits")
	case !limits && s.op == setLimits:
		d.FailAt(at+"/limits", "is required for set_limits")
	case s.lease == "" && s.op == release:
		d.FailAt(at+"/lease", "is required for release")
	case s.lease != "" && (s.op == setLimits || s.op == reset || s.op > release):
		d.FailAt(at+"/lease", "%s takes no lease", opNames[s.op])
	case s.ttl != 0 && !s.holds():
		d.FailAt(at+"/ttl_ms", "%s takes no time to live", opNames[s.op])
	}
}

// holds reports whether the operation of the step can occupy places of a concurrency limit.
func (s *step) holds() bool {
	switch s.op {
	case check, acquire, peek, force, takeUpTo, reserve, extend, grant: // reserve, extend and grant have a time to live, but not of a lease
		return true
	}
	return false
}

func readOp(d *strictjson.Decoder) op {
	name := d.Text()
	for i, n := range opNames {
		if n == name {
			return op(i)
		}
	}
	last := len(opNames) - 1
	d.Fail("must be %s or %s", strings.Join(opNames[:last], ", "), opNames[last])
	return 0
}

func readLimits(d *strictjson.Decoder) []enforcement.Limit {
	at := d.Pointer()
	var limits []enforcement.Limit
	fault := func(pointer, message string) { d.FailAt(pointer, "%s", message) }
	for i := range d.Elements() {
		if i == MaxLimits {
			d.FailAt(at, "must be at most %d limits", MaxLimits)
			return nil
		}
		here := at + "/" + strconv.Itoa(i)
		l, window := enforcement.ReadScenarioLimit(d, fault)
		if l.Name == "" {
			l.Name = "l" + strconv.Itoa(i+1)
		}
		for _, f := range l.Validate() {
			if f.Pointer == "/window" {
				f.Pointer = window
			}
			fault(here+f.Pointer, f.Message)
		}
		if first := slices.IndexFunc(limits, func(o enforcement.Limit) bool { return o.Name == l.Name }); first >= 0 {
			d.FailAt(here+"/name", "limit %d has the same name", first)
		}
		limits = append(limits, l)
	}
	if len(limits) == 0 {
		d.FailAt(at, "must be at least one limit")
	}
	return limits
}

// within reports whether the work for a scenario is within two bounds. repetitions bounds the sum
// of the repetitions of all steps. evaluations bounds the sum, over all steps, of repetitions times
// limits. If the work exceeds a bound, ok is false, and at is the index of the step at which this
// happens.
func (s *scenario) within(repetitions, evaluations int64) (at int, ok bool) {
	limits := int64(len(s.limits))
	for i := range s.steps {
		step := &s.steps[i]
		if step.op == setLimits {
			limits = int64(len(step.limits))
		}
		repetitions -= step.repeat
		evaluations -= step.repeat * limits
		if repetitions < 0 || evaluations < 0 {
			return i, false
		}
	}
	return 0, true
}
