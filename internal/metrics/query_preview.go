package metrics

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A SumQuery asks for the sum of the counts in a time range, for each of several tenants.
type SumQuery struct {
	From, To time.Time
	Tenants  []uint32
	Kind     Kind
	Names    []string // routes or policies; nil: all
}

// previewed are the columns that the preview of a draft uses. Reading only these columns takes half
// as long as reading all columns.
var previewed = []string{
	"requests", "ok", "unmatched", "over_limit", "never_fits", "blocked", "forced", "shadow_refused", "degraded", "cost",
}

// sumTenants is the maximum number of tenants in one SQL statement. Databases bound the number of
// arguments of a statement.
const sumTenants = 1000

// Sums returns one row for each tenant and name that has counts, in no particular order. Only the
// fields of the columns in previewed are set. Sums also returns the time range that the rows cover:
// the range of the query, widened to whole minutes. Where the rows of minutes are deleted, the
// range is widened to whole hours or days.
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

// MinutesKept returns the first time in the range whose rows of minutes are not deleted. If no rows
// of the range are deleted, it returns from.
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

// PolicyMinutes returns the rows of counts of the given policies of a tenant for each minute in
// [from, to), in no particular order. Only the fields of the columns in previewed are set. from
// and to must be whole minutes. Minutes whose rows are deleted are missing in the result.
func (a *Analytics) PolicyMinutes(ctx context.Context, tenant uint32, policies []string, from, to time.Time) ([]CountRow, error) {
	return a.store.Counts(ctx, CountQuery{
		Step: Minute, From: from.Unix(), To: to.Unix(), Tenant: tenant, Kind: KindPolicy, Names: policies, Fields: previewed,
	})
}

// KeyMinutes contains the top keys of one tenant, minute by minute.
type KeyMinutes struct {
	// Keys are the listed keys of the policies in the query. Count and Error of a key are sums over
	// all minutes in which the key is listed.
	Keys []TopKey
	// Minutes has one element for each minute in which at least one key was counted, oldest first.
	Minutes []KeyMinute
	// Cut is set if more rows match the query than the caller allowed. The other fields are
	// then empty.
	Cut bool
}

// A KeyMinute contains the top keys of one minute, combined from the sketches of all nodes.
type KeyMinute struct {
	At int64 // seconds since the epoch
	// Floor is an upper bound of the count of each key that is not in Keys. Total is the sum of
	// the counts of all keys of the tenant, including keys of policies that the query does not
	// name.
	Floor, Total int64
	Keys         []KeyCount
}

// A KeyCount is the count of one key in one minute. The true count is at least Count-Error and at
// most Count.
type KeyCount struct {
	Key          int // index in KeyMinutes.Keys
	Count, Error int64
}

// KeyMinutes returns the top keys of the given policies of a tenant for each minute in [from, to).
// The argument by selects what is counted: denials by limits, or allowed decisions. from and to
// must be whole minutes. If more than most rows match, the result has only Cut set. KeyMinutes
// leaves out a sketch that it cannot decode, so Total may then be too low.
func (a *Analytics) KeyMinutes(ctx context.Context, tenant uint32, by KeyRanking, policies []string, from, to time.Time,
	most int,
) (KeyMinutes, error) {
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

// add appends the minute that starts at the time at. u is the sum of the sketches of this minute. u
// has counts relative to its floor, so add adds the floor to them.
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
