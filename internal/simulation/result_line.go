package simulation

import (
	"errors"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// An answer is the result of one step of a scenario.
type answer struct {
	at           int64
	allowed      bool
	allowedCount int64
	granted      int64
	retryAfter   int64 // in milliseconds; enforcement.Never if waiting does not help
	delay        int64 // in milliseconds; the longest delay of the limits
	mode         enforcement.PolicyMode
	over         int64 // only for soft modes: the number of repetitions that passed over a limit
	cheap        bool
	replayed     bool   // set if the answer is the decision of an earlier check with the same idempotency key
	state        string // the state of the reservation after the step; "" if the step has no reservation
	problem      string // the reason why the step changed nothing, if the reason is not a limit
	limits       []limitAnswer
}

// A limitAnswer is the state of one limit after a step. resetAfter and retryAfter are in
// milliseconds, rounded up.
type limitAnswer struct {
	name                   string
	allowed                bool
	remaining, rolledOver  int64
	nearLimit              int // the highest warning threshold that the limit has reached, in percent; 0 if there is none
	resetAfter, retryAfter int64
	// charged is the number of units that a reservation stays charged on the limit. Only the answers to steps that end
	// a reservation have it; it is nil in others.
	charged *int64
}

// A line is a line of JSON output. Each of its methods appends a part of the line and returns
// the longer line.
type line []byte

func (l line) scenario(id string, answers []answer) line {
	l = append(append(l, `{"id": `...), quoted(id)...)
	l = append(l, `, "steps": [`...)
	for i := range answers {
		if i > 0 {
			l = append(l, ", "...)
		}
		l = l.step(&answers[i])
	}
	return append(l, "]}\n"...)
}

func (l line) step(a *answer) line {
	l = strconv.AppendInt(append(l, `{"at_ms": `...), a.at, 10)
	l = strconv.AppendBool(append(l, `, "allowed": `...), a.allowed)
	l = strconv.AppendInt(append(l, `, "allowed_count": `...), a.allowedCount, 10)
	l = strconv.AppendInt(append(l, `, "granted": `...), a.granted, 10)
	l = append(l, `, "retry_after_ms": `...).time(a.retryAfter)
	l = strconv.AppendInt(append(l, `, "delay_ms": `...), a.delay, 10)
	if a.mode.Soft() {
		l = strconv.AppendInt(append(l, `, "over_count": `...), a.over, 10)
	}
	if a.cheap {
		l = append(l, `, "serve": "cheap"`...)
	}
	if a.replayed {
		l = append(l, `, "replayed": true`...)
	}
	if a.state != "" {
		l = append(append(l, `, "reservation": `...), quoted(a.state)...)
	}
	if a.problem != "" {
		l = append(append(l, `, "problem": `...), quoted(a.problem)...)
	}
	l = append(l, `, "limits": [`...)
	for i := range a.limits {
		if i > 0 {
			l = append(l, ", "...)
		}
		m := &a.limits[i]
		l = append(append(l, `{"name": `...), quoted(m.name)...)
		l = strconv.AppendBool(append(l, `, "allowed": `...), m.allowed)
		l = strconv.AppendInt(append(l, `, "remaining": `...), m.remaining, 10)
		if m.charged != nil {
			l = strconv.AppendInt(append(l, `, "charged": `...), *m.charged, 10)
		}
		if m.rolledOver > 0 {
			l = strconv.AppendInt(append(l, `, "rolled_over": `...), m.rolledOver, 10)
		}
		if m.nearLimit > 0 {
			l = strconv.AppendInt(append(l, `, "near_limit": `...), int64(m.nearLimit), 10)
		}
		l = append(l, `, "reset_after_ms": `...).time(m.resetAfter)
		l = append(append(l, `, "retry_after_ms": `...).time(m.retryAfter), '}')
	}
	return append(l, "]}"...)
}

// time appends a duration in milliseconds, or null for enforcement.Never.
func (l line) time(ms int64) line {
	if ms == enforcement.Never {
		return append(l, "null"...)
	}
	return strconv.AppendInt(l, ms, 10)
}

// failed returns the error line for a scenario that cannot be played. The line contains the
// path of the first invalid field, for example steps[2].op, and the error message. If idKnown
// is false, the id in the line is null.
func failed(id string, idKnown bool, err error) line {
	field, message := "", err.Error()
	var p *problem.Problem
	if errors.As(err, &p) {
		message = p.Message
		if len(p.Fields) > 0 {
			field, message = fieldPath(p.Fields[0].Pointer), p.Fields[0].Message
		}
	}
	l := line(`{"id": `)
	if idKnown {
		l = append(l, quoted(id)...)
	} else {
		l = append(l, "null"...)
	}
	l = append(append(l, `, "error": {"field": `...), quoted(field)...)
	l = append(append(l, `, "message": `...), quoted(message)...)
	return append(l, "}}\n"...)
}

// fieldPath converts a JSON pointer to a form that is easier to read: /steps/2/op becomes
// steps[2].op.
func fieldPath(pointer string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if _, err := strconv.ParseUint(part, 10, 32); err == nil && b.Len() > 0 {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	return b.String()
}

func quoted(s string) []byte {
	text, _ := enforcement.MarshalJSON(s) // cannot fail for a string
	return text
}
