package metrics

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// rowsKept is a Store of counts in memory, with minutes and with hours that are rolled up.
type rowsKept struct {
	Store
	kept Kept
	rows map[Step][]CountRow
	read int
}

func (s *rowsKept) Kept(context.Context, int64, int64) (Kept, error) { return s.kept, nil }

func (s *rowsKept) Counts(_ context.Context, q CountQuery) (list []CountRow, err error) {
	for _, r := range s.rows[q.Step] {
		if r.At >= q.From && r.At < q.To && (len(q.Names) == 0 || slices.Contains(q.Names, r.Name)) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b CountRow) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.Name, a.Name)) })
	if q.Limit > 0 {
		list = list[:min(q.Limit, len(list))]
	}
	s.read += len(list)
	return list, nil
}

// A ranking has the whole count of each name, once, for every order of reading, and reads
// at most the rows that the bounds allow.
func TestRankingIsWhole(t *testing.T) {
	t.Parallel()
	cut := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 9))
		s := &rowsKept{rows: map[Step][]CountRow{}, kept: Kept{Due: []RollUp{{Hour, midnight + 2*anHour}, {Day, midnight}}}}
		names, truth := 1+random.IntN(30), map[string]int64{}
		for minute := range int64(150) {
			for i := range names {
				if random.IntN(3) > 0 {
					continue
				}
				n := 1 + random.Int64N(int64(1+i))
				row := CountRow{CountKey{At: midnight + minute*aMinute, Kind: KindRoute, Name: fmt.Sprint("/", i)}, Counts{Requests: n}}
				truth[row.Name] += n
				s.rows[Minute] = append(s.rows[Minute], row)
				row.At = floorTo(row.At, Hour)
				at := slices.IndexFunc(s.rows[Hour], func(r CountRow) bool { return r.CountKey == row.CountKey })
				if at < 0 {
					s.rows[Hour] = append(s.rows[Hour], row)
				} else {
					s.rows[Hour][at].Requests += n
				}
			}
		}
		a := NewAnalytics(s, AnalyticsConfig{Now: func() time.Time { return time.Unix(midnight+3*anHour-1, 0) }})
		q := Query{From: time.Unix(midnight, 0), To: time.Unix(midnight+3*anHour, 0), Limit: 100, Step: Hour}
		b := rankBounds{newest: 1 + random.IntN(500), exact: 1 + random.IntN(400)}
		got, err := a.rank(t.Context(), q, CountQuery{Kind: KindRoute}, "", b)
		if err != nil {
			t.Fatal(err)
		}
		if got.More {
			cut++
		} else if len(got.Routes) != len(truth) {
			t.Fatalf("seed %d: %d names of %d, and no more", seed, len(got.Routes), len(truth))
		}
		for i, route := range got.Routes {
			sum := int64(0)
			for _, p := range route.Points {
				sum += p.Requests
			}
			if route.Total.Requests != truth[route.Name] || i < rankShown && sum != truth[route.Name] {
				t.Fatalf("seed %d, %+v: %s has %d requests, %d by points, want %d", seed, b, route.Name, route.Total.Requests, sum, truth[route.Name])
			}
		}
		// 32 rows of each name at the most: two hours and thirty minutes.
		if most := b.newest + 2 + max(rankShown*32, b.exact); s.read > most {
			t.Fatalf("seed %d, %+v: %d rows are read, more than %d", seed, b, s.read, most)
		}
	}
	if cut < 50 || cut == 300 {
		t.Errorf("%d of 300 rankings were cut: too few of one sort", cut)
	}
}
