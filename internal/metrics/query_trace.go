package metrics

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A Trace has the traced requests of one tenant, minute by minute.
type Trace struct {
	Policies []TracedPolicy // those of all minutes
	// Minutes has one element for each minute with a trace, oldest first.
	Minutes []TraceMinute
	// Cut is set if more rows match the query than the caller allowed. The other fields are
	// then empty.
	Cut bool
}

// A TraceMinute is the trace of one minute, combined from those of all nodes.
type TraceMinute struct {
	At    int64 // seconds since the epoch
	Level int   // only keys whose hash begins with this number of bits 0 are complete; see Trace.Complete
	// Seen has the number of counted requests of each policy, by its index in Trace.Policies,
	// whether they are traced or not. If it differs from the stored count of the minute, a part of
	// the trace is lost.
	Seen     map[int]int64
	Requests []TracedRequest // oldest first
}

// A TracedRequest is a request that limits decided.
type TracedRequest struct {
	At     int64 // microseconds since the epoch
	Forced bool  // of mode force
	// Other is set if a replay cannot repeat the request: for example, failure modes decided it, or it
	// made a reservation.
	Other bool
	Keys  []TracedKey // one for each policy that applied and has limits
}

// Complete reports whether the requests of a key are complete in all minutes whose level is at most
// level. It is true for every key if the level is 0.
func (k *TracedKey) Complete(level int, keyed bool) bool {
	return level == 0 || keyed && inLevel(k.Hash, uint8(min(level, maxTraceLevel)))
}

// Trace returns the traced requests of a tenant in [from, to), which must be whole minutes. If more
// than most rows match, the result has only Cut set. It leaves out rows that it cannot decode.
func (a *Analytics) Trace(ctx context.Context, tenant uint32, from, to time.Time, most int) (Trace, error) {
	rows, err := a.store.Sketches(ctx, SketchQuery{
		Step: Minute, From: from.Unix(), To: to.Unix(), Tenant: tenant, Name: SketchTrace, Limit: most + 1,
	})
	if err != nil || len(rows) > most {
		return Trace{Cut: err == nil}, err
	}
	var out Trace
	all := &trace{} // the policies of all minutes
	broken := 0
	var first error
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].At == rows[0].At {
			n++
		}
		minute := &trace{}
		for i := range rows[:n] {
			t, err := decodeTrace(rows[i].Doc)
			if err != nil {
				broken++
				first = cmp.Or(first, err)
				continue
			}
			minute.join(t)
		}
		out.Minutes = append(out.Minutes, minute.export(rows[0].At, all))
		rows = rows[n:]
	}
	out.Policies = all.policies
	if broken > 0 {
		a.cfg.Logger.ErrorContext(ctx, "traces cannot be read; they are left out", "tenant", tenant, "rows", broken, "first", first)
	}
	return out, nil
}

// export returns the minute t in the form for callers. It adds the policies of t to all.
func (t *trace) export(at int64, all *trace) TraceMinute {
	m := TraceMinute{At: at, Level: int(t.level), Seen: make(map[int]int64), Requests: make([]TracedRequest, len(t.requests))}
	places := make([]int, len(t.policies))
	for i, p := range t.policies {
		places[i] = all.place(p)
		m.Seen[places[i]] += t.seen[i]
	}
	for i := range t.keys {
		t.keys[i].Policy = places[t.keys[i].Policy]
	}
	for i, r := range t.requests {
		m.Requests[i] = TracedRequest{
			At: r.at, Forced: r.flags&flagForced != 0, Other: r.flags&flagOther != 0, Keys: t.keys[r.first : r.first+uint32(r.n)],
		}
	}
	slices.SortStableFunc(m.Requests, func(a, b TracedRequest) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.over(), b.over()))
	})
	return m
}

// over returns the number of keys whose limits did not allow the request. One script call decides many
// requests at the same microsecond, and processors count them in any order. Counters only fill up in
// that time, so a replay that decides the allowed ones first repeats the decisions.
func (q *TracedRequest) over() (n int) {
	for i := range q.Keys {
		if q.Keys[i].Over {
			n++
		}
	}
	return n
}
