package preview

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
)

// A part is what one tenant adds to the figure of one policy of the draft.
type part struct {
	requests           int64
	refused, low, high int64
	unread             string
	overridden         bool  // set if some keys have overrides; the estimate for these keys is the number of their counted denials
	floor              int64 // the value of low before rivals are considered (see leaveToRivals)
	keys               []KeyFigure
}

func counted(requests, refused int64) part {
	return part{requests: requests, refused: refused, low: refused, high: refused}
}

// Values of part.unread, the reason why the preview does not replay the requests of a tenant minute by minute.
const (
	unreadMany      = "not among the busiest"
	unreadCost      = "requests cost other than 1"
	unreadOverrides = "has overrides of the policy"
)

// unread returns the part of a tenant whose counts by minute are not replayed, for the reason
// why. The estimate is the number of counted denials, the lower bound is 0, and the upper bound
// is the number of requests.
func unread(c *metrics.Counts, why string) part {
	return part{requests: c.Requests, refused: c.Limited() + c.ShadowRefused, high: c.Requests, unread: why}
}

// costsOne reports whether the sum of the charged costs equals the number of charged requests.
// If so, each request probably had the cost 1.
func costsOne(c *metrics.Counts, mode enforcement.PolicyMode) bool {
	charged := c.OK + c.Unmatched
	if !mode.Denies() {
		charged -= c.ShadowRefused
	}
	return c.NeverFits == 0 && c.Cost <= charged && c.Cost >= charged-c.Degraded
}

// minutes contains the counts of one tenant by minute: those of its policies, and in keyed
// those of its keys.
type minutes struct {
	start    time.Time
	warm     int // number of minutes before the time range of the preview
	policies map[string][]metrics.Counts
	keyed    *keyed // nil if the rankings of keys are not read
}

// keyed contains the rankings of a tenant's keys for each minute.
type keyed struct {
	allowed, limited metrics.KeyMinutes
}

// readMinutes reads the counts by minute of the policies in r.counted of one tenant. It also
// returns the number of rows that it read.
func (r *run) readMinutes(ctx context.Context, number uint32) (*minutes, int, error) {
	rows, err := r.service.c.Analytics.PolicyMinutes(ctx, number, r.counted, r.data, r.preview.To)
	if err != nil {
		return nil, 0, err
	}
	m := &minutes{start: r.data, warm: int(r.preview.From.Sub(r.data) / time.Minute), policies: make(map[string][]metrics.Counts)}
	for i := range rows {
		list := m.policies[rows[i].Name]
		if list == nil {
			list = make([]metrics.Counts, int(r.preview.To.Sub(r.data)/time.Minute))
			m.policies[rows[i].Name] = list
		}
		list[(rows[i].At-r.data.Unix())/60].Add(&rows[i].Counts)
	}
	return m, len(rows), nil
}

// readKeys reads the rankings of a tenant's keys for each minute into m.keyed and returns their
// number. If there are more than most, it leaves m.keyed nil and returns most.
func (r *run) readKeys(ctx context.Context, number uint32, m *minutes, most int) (read int, err error) {
	if most <= 0 {
		return 0, nil
	}
	k := new(keyed)
	if k.allowed, err = r.service.c.Analytics.KeyMinutes(ctx, number, metrics.AllowedKeys, r.keyed, m.start, r.preview.To, most); err != nil {
		return 0, err
	}
	if k.limited, err = r.service.c.Analytics.KeyMinutes(ctx, number, metrics.LimitedKeys, r.keyed, m.start, r.preview.To, most); err != nil {
		return 0, err
	}
	if k.allowed.Cut || k.limited.Cut {
		return most, nil
	}
	m.keyed = k
	return len(k.allowed.Minutes) + len(k.limited.Minutes), nil
}

// series returns the requests of a published policy by minute, for all keys together. of
// selects which count is used. If the policy has no counts, the series is empty.
func (m *minutes) series(policy string, of func(*metrics.Counts) int64) series {
	list := m.policies[policy]
	s := series{start: m.start, warm: m.warm, n: make([]int64, len(list))}
	if len(list) == 0 {
		s.warm = 0
	}
	for i := range list {
		s.n[i] = of(&list[i])
		s.forced = s.forced || list[i].Forced > 0
	}
	return s
}

// all returns the number of requests that may reach the limits of a policy. certain returns the
// number of those that reach the limits whatever the draft changes in other policies: the
// requests that the limits of this policy decided. It leaves out forced requests, which limits
// do not decide.
func all(c *metrics.Counts) int64 { return c.Requests }

func certain(c *metrics.Counts) int64 {
	return max(0, c.OK+c.Unmatched+c.OverLimit+c.NeverFits-c.Forced)
}

// replayTenant returns the part of a tenant for a policy without count_by. Such a policy has
// one counter for the whole tenant.
func (m *minutes) replayTenant(limits []enforcement.Limit, source string, requests int64) part {
	every := m.series(source, all)
	p := part{requests: requests, low: mustRefuse(limits, m.series(source, certain)), high: canRefuse(limits, every)}
	if p.high > 0 {
		p.refused = replay(limits, m.series(source, func(c *metrics.Counts) int64 { return c.Requests - c.Blocked }))
	}
	return p
}

// A keyLine contains the requests of one key by minute. at has the index of each minute in
// which the key may have requests. lo and hi have a lower and an upper bound of their number in
// this minute.
type keyLine struct {
	key    metrics.TopKey
	at     []int32
	lo, hi []int64
	known  int64 // sum of lo
	most   int64 // sum of hi
	denied int64 // counted denials of the key after the warm minutes
}

// lines returns a keyLine for each key of the policy source that is in a ranking. rest has, for
// each minute, the number of requests that cannot be assigned to these keys: the requests of
// the policy minus the lower bounds of the keys. absent has, for each minute, an upper bound of
// the requests of any key that is in no ranking.
func (m *minutes) lines(source *plans.Policy, published *side) (lines []*keyLine, rest, absent []int64) {
	list := m.policies[source.Slug]
	rest, absent = make([]int64, len(list)), make([]int64, len(list))
	gapAllowed, gapLimited := m.gaps(published)
	allowed, limited := rankings(m.keyed.allowed, m, source), rankings(m.keyed.limited, m, source)
	places := make(map[string]*keyLine)
	for i := range list {
		c := &list[i]
		rest[i] = c.Requests
		// Rankings leave out some requests: those that other policies denied, and those that no
		// limiter decided.
		other := max(0, c.Requests-c.OK-c.Unmatched-c.OverLimit-c.NeverFits-c.Blocked) + c.Degraded
		floorAllowed, floorLimited := allowed.floor[i]+gapAllowed[i], limited.floor[i]+gapLimited[i]
		absent[i] = min(c.Requests, floorAllowed+floorLimited+other)
		here := make(map[string]bool)
		for id := range allowed.keys[i] {
			here[id] = true
		}
		for id := range limited.keys[i] {
			here[id] = true
		}
		for id := range here {
			var lo, hi, denied int64
			if k, listed := allowed.keys[i][id]; listed {
				lo, hi = k.Count-k.Error, k.Count+gapAllowed[i]
			} else {
				hi = floorAllowed
			}
			if k, listed := limited.keys[i][id]; listed {
				lo, hi = lo+k.Count-k.Error, hi+k.Count+gapLimited[i]
				if i >= m.warm {
					denied = k.Count - k.Error
				}
			} else {
				hi += floorLimited
			}
			line := places[id]
			if line == nil {
				line = &keyLine{key: allowed.of(limited, id)}
				places[id] = line
				lines = append(lines, line)
			}
			hi = min(hi+other, c.Requests)
			lo = min(lo, hi)
			line.at, line.lo, line.hi = append(line.at, int32(i)), append(line.lo, lo), append(line.hi, hi)
			line.denied += denied
			rest[i] -= lo
		}
		rest[i] = max(0, rest[i])
		absent[i] = min(absent[i], rest[i])
	}
	for _, line := range lines {
		for k, at := range line.at {
			line.hi[k] = min(line.hi[k], line.lo[k]+rest[at])
			line.known, line.most = line.known+line.lo[k], line.most+line.hi[k]
		}
	}
	return lines, rest, absent
}

// gaps returns, for each minute, the number of counted requests that the rankings do not
// contain yet, because rankings are written some seconds later than counts. allowed and limited
// are the gaps of the two rankings.
func (m *minutes) gaps(published *side) (allowed, limited []int64) {
	for slug, list := range m.policies {
		at := published.place(slug)
		if allowed == nil {
			allowed, limited = make([]int64, len(list)), make([]int64, len(list))
		}
		if at < 0 || !published.policies[at].Mode.InForce() {
			continue
		}
		for i := range list {
			limited[i] += list[i].Limited() + list[i].Blocked
			if len(published.policies[at].CountBy) > 0 {
				allowed[i] += list[i].Allowed()
			}
		}
	}
	for i := range m.keyed.allowed.Minutes {
		minute := &m.keyed.allowed.Minutes[i]
		allowed[m.place(minute.At)] -= minute.Total
	}
	for i := range m.keyed.limited.Minutes {
		minute := &m.keyed.limited.Minutes[i]
		limited[m.place(minute.At)] -= minute.Total
	}
	for i := range allowed {
		allowed[i], limited[i] = max(0, allowed[i]), max(0, limited[i])
	}
	return allowed, limited
}

func (m *minutes) place(at int64) int { return int((at - m.start.Unix()) / 60) }

// A ranked contains the keys of one policy in all minutes of one ranking. floor and keys have
// one element for each minute.
type ranked struct {
	list  []metrics.TopKey
	ids   map[string]int // index in list
	floor []int64
	keys  []map[string]metrics.KeyCount
}

func rankings(k metrics.KeyMinutes, m *minutes, source *plans.Policy) ranked {
	n := len(m.policies[source.Slug])
	r := ranked{list: k.Keys, ids: make(map[string]int), floor: make([]int64, n), keys: make([]map[string]metrics.KeyCount, n)}
	ids := make([]string, len(k.Keys))
	for i := range k.Keys {
		if key := &k.Keys[i]; key.Policy == source.Slug && slices.Equal(key.Names, source.CountBy) {
			ids[i] = identity(key)
			r.ids[ids[i]] = i
		}
	}
	for i := range k.Minutes {
		minute := &k.Minutes[i]
		at := m.place(minute.At)
		r.floor[at] = minute.Floor
		r.keys[at] = make(map[string]metrics.KeyCount, len(minute.Keys))
		for _, c := range minute.Keys {
			if id := ids[c.Key]; id != "" {
				r.keys[at][id] = c
			}
		}
	}
	return r
}

// identity returns a text that is different for each key of one policy.
func identity(k *metrics.TopKey) string {
	var b strings.Builder
	for i, v := range k.Values {
		if k.Missing[i] {
			b.WriteString("\x01")
			continue
		}
		b.WriteString("\x02" + strings.ReplaceAll(v, "\x00", "\x00\x00") + "\x00\x01")
	}
	return b.String()
}

// of returns the key with this identity. The key is in r or in other.
func (r ranked) of(other ranked, id string) metrics.TopKey {
	if at, known := r.ids[id]; known {
		return r.list[at]
	}
	return other.list[other.ids[id]]
}

// replayKeys returns the part of a tenant for a policy with a count_by. It does not replay a
// key with an override, because this key has other limits. The estimate of such a key is the
// number of its counted denials, and its upper bound is the number of its requests.
func (m *minutes) replayKeys(
	limits []enforcement.Limit, source *plans.Policy, published *side, slug string, requests int64, overrides overridesOf,
) part {
	p := part{requests: requests, overridden: len(overrides.list) > 0}
	lines, rest, absent := m.lines(source, published)
	dense := m.series(source.Slug, all)
	warm := m.warm >= warmUp(limits)
	unnamed, few := sum(rest), calm(limits)
	// sure and may are two ways to compute an upper bound. The smaller result is used.
	//
	// For sure, each key gets its lower bound of requests, and all other requests count as
	// denied. For may, each key gets its upper bound of requests. The requests of unknown keys
	// count as denied only if a single key can have so many of them that a limit denies one.
	var sure, may int64
	background := sum(absent)
	for _, line := range lines {
		if overrides.apply(&line.key) {
			n := line.sinceWarm(m.warm)
			sure += n
			may += line.mostSinceWarm(m.warm, absent)
			p.refused += min(line.denied, n)
			continue
		}
		if warm && line.most+background <= few {
			continue
		}
		clear(dense.n)
		for k, at := range line.at {
			dense.n[at] = line.lo[k]
		}
		p.low += mustRefuse(limits, dense)
		sure += canRefuse(limits, dense)
		guess := replay(limits, dense)
		copy(dense.n, absent)
		for k, at := range line.at {
			dense.n[at] = line.hi[k]
		}
		may += canRefuse(limits, dense)
		if guess > 0 {
			p.refused += guess
			p.keys = append(p.keys, KeyFigure{
				Tenant: slug, Names: line.key.Names, Values: line.key.Values, Missing: line.key.Missing, Redacted: line.key.Redacted,
				Requests: line.sinceWarm(m.warm), Refused: guess,
			})
		}
	}
	copy(dense.n, absent)
	if canRefuse(limits, dense) > 0 {
		may += unnamed
	} else {
		may += min(unnamed, overrides.mostRefused(limits, dense, lines, unnamed))
	}
	p.high = min(sure+unnamed, may, requests)
	// The counts of keys include forced and blocked requests. Limits deny neither of them.
	list := m.policies[source.Slug]
	for i := m.warm; i < len(list); i++ {
		p.low -= list[i].Forced + list[i].Blocked
	}
	p.low = max(0, p.low)
	return p
}

// mostSinceWarm returns an upper bound of the requests of the key after the warm minutes. absent has
// the bound for each minute in which the key is in no ranking.
func (k *keyLine) mostSinceWarm(warm int, absent []int64) int64 {
	n := sum(absent[min(warm, len(absent)):])
	for i, at := range k.at {
		if int(at) >= warm {
			n += k.hi[i] - absent[at]
		}
	}
	return n
}

// since returns the minutes from the time at on, for a policy whose earlier counts do not belong to
// the same requests.
func (m *minutes) since(at time.Time) *minutes {
	skip := int(at.Sub(m.start) / time.Minute)
	if skip <= 0 {
		return m
	}
	later := &minutes{
		start: m.start.Add(time.Duration(skip) * time.Minute), warm: max(0, m.warm-skip), policies: make(map[string][]metrics.Counts),
	}
	for slug, list := range m.policies {
		later.policies[slug] = list[min(skip, len(list)):]
	}
	if m.keyed != nil {
		later.keyed = &keyed{allowed: keysSince(m.keyed.allowed, later.start), limited: keysSince(m.keyed.limited, later.start)}
	}
	return later
}

func keysSince(k metrics.KeyMinutes, at time.Time) metrics.KeyMinutes {
	first := slices.IndexFunc(k.Minutes, func(m metrics.KeyMinute) bool { return m.At >= at.Unix() })
	if first < 0 {
		first = len(k.Minutes)
	}
	k.Minutes = k.Minutes[first:]
	return k
}

func (k *keyLine) sinceWarm(warm int) (n int64) {
	for i, at := range k.at {
		if int(at) >= warm {
			n += k.lo[i]
		}
	}
	return n
}
