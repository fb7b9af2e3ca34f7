package metrics

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// What a preview of a plan's draft asks: sums of many tenants at once, and the
// minutes of one tenant's policies and keys.

// A SumQuery asks for sums of several tenants.
type SumQuery struct {
	From, To time.Time
	Tenants  []uint32
	Kind     Kind
	Names    []string // none: all
}

// previewed are the fields that a preview needs; without the others a row is
// read in half the time.
var previewed = []string{
	"requests", "ok", "unmatched", "over_limit", "never_fits", "blocked", "forced", "shadow_refused", "degraded", "cost",
}

// sumTenants is how many tenants are asked for at once: a statement has so many
// arguments at most.
const sumTenants = 1000

// Sums gives one row for each tenant and name of which anything was counted, in
// no order; At is 0, and so are fields of other refusals, Listed and Local. The span is widened to whole minutes, and to whole hours or
// days where minutes or hours are not kept any more; it is given back.
func (a *Analytics) Sums(ctx context.Context, q SumQuery) ([]CountRow, Span, error) {
	r, err := a.reading(ctx, Query{From: q.From, To: q.To}, bounds{rows: maxRows})
	if err != nil {
		return nil, Span{}, err
	}
	sums := make(map[CountKey]*Counts)
	for tenants := range slices.Chunk(q.Tenants, sumTenants) {
		of := CountQuery{Tenants: tenants, Kind: q.Kind, Names: q.Names, Fields: previewed}
		for _, p := range r.parts {
			rows, err := a.store.SumCounts(ctx, p.query(of))
			if err != nil {
				return nil, Span{}, err
			}
			for i := range rows {
				key := rows[i].CountKey
				key.At = 0
				if sum := sums[key]; sum != nil {
					sum.Add(&rows[i].Counts)
					continue
				}
				sums[key] = &rows[i].Counts
			}
		}
	}
	list := make([]CountRow, 0, len(sums))
	for key, sum := range sums {
		list = append(list, CountRow{key, *sum})
	}
	return list, r.Span, nil
}

// MinutesKept gives the first instant of a span from which on every minute is
// kept; not before from.
func (a *Analytics) MinutesKept(ctx context.Context, from, to time.Time) (time.Time, error) {
	kept, err := a.store.Kept(ctx, from.Unix(), to.Unix())
	if err != nil {
		return time.Time{}, err
	}
	if first := time.Unix(kept.Minutes, 0).UTC(); first.After(from) {
		return first, nil
	}
	return from, nil
}

// PolicyMinutes gives the minutes in [from, to), whole minutes both, of some
// policies of one tenant, in no order, with the fields that Sums has.
func (a *Analytics) PolicyMinutes(ctx context.Context, tenant uint32, policies []string, from, to time.Time) ([]CountRow, error) {
	return a.store.Counts(ctx, CountQuery{
		Step: Minute, From: from.Unix(), To: to.Unix(), Tenant: tenant, Kind: KindPolicy, Names: policies, Fields: previewed,
	})
}

// KeyMinutes are the keys of one tenant, by minute.
type KeyMinutes struct {
	// Keys are those of the policies that were asked for; their numbers are sums.
	Keys []TopKey
	// Minutes of which anything is known, oldest first.
	Minutes []KeyMinute
	// Cut tells that there is more than was to be read: nothing else is given.
	Cut bool
}

// A KeyMinute is one minute of a ranking, of all nodes together.
type KeyMinute struct {
	At int64 // seconds since the epoch
	// Floor is the most that a key had that is not in Keys. Total is of all keys
	// of all policies.
	Floor, Total int64
	Keys         []KeyCount
}

// A KeyCount is one key in one minute: from Count-Error to Count.
type KeyCount struct {
	Key          int // place in KeyMinutes.Keys
	Count, Error int64
}

// KeyMinutes gives the keys of some policies of a tenant minute by minute in
// [from, to), whole minutes both. Of more than most rows it says so and gives
// nothing. A row that cannot be read is left out: Total is then less than what
// was counted.
func (a *Analytics) KeyMinutes(ctx context.Context, tenant uint32, by KeyRanking, policies []string, from, to time.Time,
	most int) (KeyMinutes, error) {
	rows, err := a.store.Sketches(ctx, SketchQuery{
		Step: Minute, From: from.Unix(), To: to.Unix(), Tenant: tenant, Name: by.sketch(), Limit: most + 1,
	})
	if err != nil || len(rows) > most {
		return KeyMinutes{Cut: err == nil}, err
	}
	var out KeyMinutes
	places := make(map[textMark]int)
	broken := 0
	var first error
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].At == rows[0].At {
			n++
		}
		u := newUnion()
		for i := range rows[:n] {
			t, err := decodeTopList(by.sketch(), rows[i].Doc)
			if err != nil {
				broken++
				first = cmp.Or(first, err)
				continue
			}
			u.add(t)
		}
		out.add(u, rows[0].At, policies, places)
		rows = rows[n:]
	}
	if broken > 0 {
		a.cfg.Logger.ErrorContext(ctx, "sketches cannot be read; they are left out", "tenant", tenant, "name", by.sketch(), "rows", broken,
			"first", first)
	}
	return out, nil
}

// add takes over one minute. What a key has in a union is above the sum of floors.
func (k *KeyMinutes) add(u *union, at int64, policies []string, places map[textMark]int) {
	m := KeyMinute{At: at, Floor: u.floor, Total: u.total}
	for mark, place := range u.places {
		sum := &u.keys[place]
		if !slices.Contains(policies, sum.text.policy) {
			continue
		}
		count, wrong := sum.count+u.floor, sum.error+u.floor
		to, known := places[mark]
		if !known {
			to = len(k.Keys)
			places[mark] = to
			key := ranked{text: *sum.text}
			k.Keys = append(k.Keys, key.key())
		}
		k.Keys[to].Count += count
		k.Keys[to].Error += wrong
		m.Keys = append(m.Keys, KeyCount{to, count, wrong})
	}
	k.Minutes = append(k.Minutes, m)
}
