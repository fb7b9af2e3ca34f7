package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A Level is the severity of a Verdict about a node.
type Level uint8

// The levels, from the least to the most severe.
const (
	Note    Level = iota + 1 // worth knowing; nothing is wrong
	Warning                  // an operator should fix the problem within a day
	Alarm                    // limits are not exact, edits have no effect, or a node is missing
)

// String returns "note", "warning" or "alarm". For 0, it returns "well".
func (l Level) String() string {
	switch l {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Alarm:
		return "alarm"
	}
	return "well"
}

// A Verdict is one note, warning or alarm about a node.
type Verdict struct {
	Level Level
	// Code identifies the rule that led to the verdict. Tests and links use the code, so it never
	// changes.
	Code string
	// Text describes the problem for people, without a period at the end, like "Redis unreachable
	// for 40 s".
	Text string
}

// Bounds of normal values. If a value exceeds its bound, the node gets a verdict.
const (
	// staleAfter is the longest normal time since the database last confirmed the revision. A
	// node asks for the revision twice a second.
	staleAfter = 5 * time.Second
	// waitingAfter is the longest normal age of unwritten counts. Nodes write them every second.
	waitingAfter = 10 * time.Second
	// durableAfter is the longest normal age of a change of a durable counter that is not in the
	// database yet. Nodes write such changes after ten seconds.
	durableAfter = 30 * time.Second
	// skewed is the largest normal difference of two clocks. The write of a report takes up to
	// putTimeout, and this duration looks like clock skew.
	skewed = putTimeout
	// missed is how long a loss of data in Redis counts as an alarm. After this time, it counts
	// only as a note. A silent node counts as an alarm until it reports again, or for the time
	// Keep.
	missed = time.Hour
	// nearlyFull is the part of a maximum at which a node gets a warning.
	nearlyFull = 0.8
	// mostTold is the maximum number of tenants that the verdicts about a node name because they
	// have their maximum number of keys.
	mostTold = 5
)

// verdicts returns the verdicts about a node, the most severe first. now is a time of the
// database's clock. live is the number of nodes that are neither silent nor stopping.
func verdicts(r *Report, now time.Time, live int) []Verdict {
	if r.Silent {
		return []Verdict{silence(r)} // the other fields of the report are out of date
	}
	if r.Unreadable {
		return []Verdict{{Warning, "unreadable", "its report cannot be read by this release"}}
	}
	var list []Verdict
	say := func(l Level, code, format string, args ...any) {
		list = append(list, Verdict{l, code, fmt.Sprintf(format, args...)})
	}
	warnAboutLimiter(r, now, live, say)
	warnAboutDurable(r, now, say)
	warnAboutSnapshot(r, say)
	warnAboutDatabase(r, now, say)
	warnAboutCounts(r, say)
	switch skew := r.Skew(); {
	case skew > skewed:
		say(Warning, "clock", "its clock is %s ahead of the database's", span(skew))
	case skew < -skewed:
		say(Warning, "clock", "its clock is %s behind the database's", span(-skew))
	}
	if r.Draining {
		say(Note, "stopping", "is stopping and finishes running requests")
	}
	slices.SortStableFunc(list, func(a, b Verdict) int { return cmp.Compare(b.Level, a.Level) })
	return list
}

// silence returns the verdict about a silent node. If the counts in the node's last report were
// overdue, the text contains their number, because these counts may be lost.
func silence(r *Report) Verdict {
	text := "silent for " + span(r.SilentFor)
	if r.Draining {
		text += ", since it began to stop"
	}
	if n := r.Counts.WaitingRows; n > 0 && r.Counts.Waiting > waitingAfter {
		text += "; " + plural(n, "row", "rows") + " of counts were not in the database"
	}
	return Verdict{Alarm, "silent", text}
}

type sayer func(l Level, code, format string, args ...any)

// warnAboutLimiter adds a verdict for each condition under which limits are not exact.
func warnAboutLimiter(r *Report, now time.Time, live int, say sayer) {
	if r.Limiter != LimiterRedis {
		if live > 1 && !r.Draining {
			say(Alarm, "alone", "counts without Redis, but %d nodes run: each allows the whole quota", live)
		}
		return
	}
	if !r.Redis.Reachable {
		say(Alarm, "redis_away", "Redis unreachable for %s%s", span(max(0, r.Ago(r.Redis.Since, now))), because(r.Redis.Err))
	}
	if f := r.Redis.Refusal; !f.Since.IsZero() {
		say(Alarm, "redis_refuses", "Redis refuses writes for %s%s", span(max(0, r.Ago(f.Since, now))), because(f.Answer))
	}
	if !r.Redis.LostAt.IsZero() {
		warnAboutLoss(max(0, r.Ago(r.Redis.LostAt, now)), r.Redis.Lost, say)
	}
	if used, most := r.Redis.UsedMemory, r.Redis.MaxMemory; most > 0 && float64(used) >= nearlyFull*float64(most) {
		say(Warning, "redis_memory", "Redis uses %d%% of the memory that it may use", used*100/most)
	}
	for _, k := range r.Redis.Keys[:min(len(r.Redis.Keys), mostTold)] {
		switch {
		case k.Full:
			say(Warning, "tenant_full", "tenant %s has as many counters as it may have (%s): new keys share one counter for each limit",
				k.Tenant, plural(k.Max, "counter", "counters"))
		case float64(k.Live) >= nearlyFull*float64(k.Max):
			say(Warning, "tenant_nearly_full", "tenant %s has %d%% of the counters that it may have", k.Tenant, k.Live*100/k.Max)
		}
	}
	if n := r.Redis.Mismatches; n > 0 {
		say(Warning, "redis_mismatches", "Redis decided %s differently from the reference", plural(n, "request", "requests"))
	}
	if p := r.Redis.MaxMemoryPolicy; p != "" && p != "noeviction" {
		say(Warning, "redis_evicts", "Redis may forget counters when its memory is full: its maxmemory-policy is %s", p)
	}
	if r.Sharing > 0 && live > r.Sharing && !r.Draining {
		say(Warning, "sharing",
			"HEADGATE_NODES is %d, and %d nodes run: while Redis is unreachable, they allow more than the limits", r.Sharing, live)
	}
}

// warnAboutLoss adds a verdict if Redis lost data less than Keep ago. ago is the time since the
// loss. After the loss, the limits are exact again.
func warnAboutLoss(ago time.Duration, what string, say sayer) {
	switch {
	case ago < missed:
		say(Alarm, "redis_lost", "Redis lost counts %s ago: %s", span(ago), what)
	case ago < Keep:
		say(Note, "redis_lost", "Redis lost counts %s ago: %s", span(ago), what)
	}
}

// warnAboutDurable adds warnings about durable limits that are not restored, or not written to the database.
func warnAboutDurable(r *Report, now time.Time, say sayer) {
	d := &r.Durable
	if !d.LostSince.IsZero() {
		say(Alarm, "unrestored", "durable limits lost for %s and not restored yet: on_failure decides", span(max(0, r.Ago(d.LostSince, now))))
	}
	if ago := max(0, r.Ago(d.WaitingSince, now)); !d.WaitingSince.IsZero() && ago > durableAfter {
		say(Warning, "durable_waiting", "durable limits: %s not in the database yet, the oldest for %s",
			plural(int64(d.Waiting), "change", "changes"), span(ago))
	}
	if d.NotKept > 0 {
		say(Warning, "durable_dropped", "durable limits: %s not kept, because too many waited for the database",
			plural(d.NotKept, "change", "changes"))
	}
}

// because returns the text to append to a message that has a cause: a colon and the cause. It
// returns "" if cause is "".
func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

// warnAboutDatabase adds an alarm if the database rejects writes. Neither edits nor counts can
// then be stored.
func warnAboutDatabase(r *Report, now time.Time, say sayer) {
	if f := r.Database.Refusal; !f.Since.IsZero() {
		say(Alarm, "database_refuses", "the database refuses writes for %s%s", span(max(0, r.Ago(f.Since, now))), because(f.Answer))
	}
}

// warnAboutSnapshot adds verdicts about edits that the node does not apply. It compares the
// revision in the report with the revision that was the newest at the time of the report, because a
// report cannot contain later edits.
func warnAboutSnapshot(r *Report, say sayer) {
	s := &r.Snapshot
	stale := r.At.Sub(s.ConfirmedAt) > staleAfter
	switch {
	case s.Held != "":
		say(Alarm, "held", "keeps its snapshot instead of a newer state of the database: %s", s.Held)
	case stale && r.Behind > 0:
		say(Alarm, "behind", "behind by %s for %s", plural(r.Behind, "revision", "revisions"), span(r.Confirmed))
	case stale:
		say(Alarm, "unconfirmed", "revision not confirmed by the database for %s", span(r.Confirmed))
	}
	if !s.Listening {
		say(Warning, "deaf", "receives no notifications of changes and polls for them")
	}
	if n := s.Problems; n > 0 {
		say(Warning, "problems", "%s cannot be used as stored", plural(int64(n), "object", "objects"))
	}
}

// warnAboutCounts adds a verdict if the node cannot write counts of decisions to the database.
func warnAboutCounts(r *Report, say sayer) {
	c := &r.Counts
	if c.Waiting <= waitingAfter {
		return
	}
	say(Warning, "waiting", "counts waiting: %s, the oldest for %s%s", plural(c.WaitingRows, "row", "rows"), span(c.Waiting+r.SilentFor),
		because(c.Failure))
}

// span returns a duration as a text, rounded down, like "40 s" or "3 days".
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int64(d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int64(d/time.Minute))
	case d < 2*day:
		return fmt.Sprintf("%d h", int64(d/time.Hour))
	}
	return plural(int64(d/day), "day", "days")
}

// plural returns a number with a noun in the singular or plural, like "1 row" or "12,000 rows".
func plural(n int64, one, many string) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	if n == 1 {
		many = one
	}
	return digits + " " + many
}
