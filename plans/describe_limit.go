package plans

import (
	"cmp"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Describe returns an English description of a limit, such as "120 per minute, bursts of 20" or
// "5 per minute, exact".
func Describe(l enforcement.Limit) string {
	if l.Quota == 0 {
		return "none: every request is denied"
	}
	text := describeNumbers(l)
	separator := ", warns at "
	for _, p := range l.WarnAt.Percentages() {
		text += separator + strconv.Itoa(p) + "%"
		separator = " and "
	}
	switch l.Durability {
	case enforcement.Durable:
		text += ", durable"
	case enforcement.NotDurable:
		text += ", not durable"
	}
	if l.MaxRollover > 0 {
		text += ", up to " + thousands(l.MaxRollover) + " roll over"
	}
	if l.CarryOver != enforcement.CarryKeep {
		text += ", new numbers: " + l.CarryOver.String()
	}
	return text
}

func describeNumbers(l enforcement.Limit) string {
	if l.Algorithm == enforcement.Concurrency {
		return thousands(l.Quota) + " at the same time, each for up to " + lasting(l.Window)
	}
	text := thousands(l.Quota) + " per " + spoken(l.Window)
	if l.Period != enforcement.NoPeriod {
		text = thousands(l.Quota) + " per calendar " + l.Period.String()
		if l.Anchor.Weekday() && l.Anchor != enforcement.Monday {
			text += " from " + l.Anchor.String()
		}
	}
	switch l.Algorithm {
	case enforcement.TokenBucket, enforcement.GCRA:
		l.Burst = cmp.Or(l.Burst, l.Quota)
		return text + ", bursts of " + thousands(l.Burst)
	case enforcement.LeakyBucket:
		text += ", in a queue of " + thousands(l.Capacity())
		if wait := l.LongestDelay(); wait > 0 {
			text += ", which waits up to " + lastingMicros(wait)
		}
		return text
	case enforcement.SlidingWindowLog:
		return text + ", exact"
	case enforcement.SlidingWindowCounter:
		text += ", sliding"
	}
	if l.Anchor == enforcement.Clock {
		text += ", by the clock"
	}
	return text
}

// lastingMicros returns the English words for a time in microseconds, such as "2.5 seconds". It is
// rounded up to a tenth of the unit.
func lastingMicros(micros int64) string {
	for _, u := range []struct {
		size int64 // microseconds
		name string
	}{{86_400_000_000, "days"}, {3_600_000_000, "hours"}, {60_000_000, "minutes"}, {1_000_000, "seconds"}} {
		if micros >= 2*u.size {
			tenths := (micros*10 + u.size - 1) / u.size
			if tenths%10 == 0 {
				return thousands(tenths/10) + " " + u.name
			}
			return thousands(tenths/10) + "." + strconv.FormatInt(tenths%10, 10) + " " + u.name
		}
	}
	return thousands(enforcement.Milliseconds(micros)) + " ms"
}

// lasting returns the English words for a time to live, such as "1 minute" or "90 seconds".
func lasting(ttl time.Duration) string {
	text := spoken(ttl)
	if text[0] < '0' || text[0] > '9' {
		text = "1 " + text
	}
	return text
}

// spoken returns the length of a window in English words, such as "minute" or "90 seconds".
func spoken(window time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch {
		case window == u.size:
			return u.name
		case window%u.size == 0 && window != 0:
			return thousands(int64(window/u.size)) + " " + u.name + "s"
		}
	}
	if window == time.Millisecond {
		return "millisecond"
	}
	return thousands(window.Milliseconds()) + " milliseconds"
}

// thousands returns a number as text, with commas between groups of three digits.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	from := 0
	if n < 0 {
		from = 1
	}
	for i := len(text) - 3; i > from; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
