package limitertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// stepsInSequence is the number of steps of a random sequence.
const stepsInSequence = 50

// Sequences plays n random sequences of 50 steps each. It compares each result with the
// model and with the reference functions. All combinations of algorithms are used
// equally often.
//
// If n is 0, Sequences reads n from HEADGATE_FUZZ_SEQUENCES; the default is 2000. If
// seed is 0, it reads the seed from HEADGATE_FUZZ_SEED; the default is a random seed. A
// failure prints the seed and the shortest list of steps that still fails.
func Sequences(t *testing.T, factory Factory, n int, seed uint64) {
	t.Helper()
	playEach(t, factory, n, seed, func(w *harness, _ *rand.Rand, s *sequence) error {
		err := s.playOn(w)
		if err == nil {
			return nil
		}
		short := s.shrink(w)
		return fmt.Errorf("%w\nshortened:\n%s%w", err, short, short.playOn(w))
	})
}

// playEach plays n random sequences, the same number of each mix. play returns an error if a result is wrong. r is the
// source of random numbers for the sequence.
func playEach(t *testing.T, factory Factory, n int, seed uint64, play func(w *harness, r *rand.Rand, s *sequence) error) {
	t.Helper()
	if n == 0 {
		n = int(fromEnvironment(t, "HEADGATE_FUZZ_SEQUENCES", 2000))
	}
	if seed == 0 {
		seed = fromEnvironment(t, "HEADGATE_FUZZ_SEED", rand.Uint64())
	}
	for _, mix := range mixes {
		t.Run(mix.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, factory)
			for i := range (n + len(mixes) - 1) / len(mixes) {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				if err := play(w, r, newSequence(r, mix.limits)); err != nil {
					t.Fatalf("replay with HEADGATE_FUZZ_SEED=%d HEADGATE_FUZZ_SEQUENCES=%d\nsequence %d: %v", seed, (i+1)*len(mixes), i, err)
				}
			}
		})
	}
}

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// shrink returns the shortest sequence that it finds and that still fails.
func (s *sequence) shrink(w *harness) *sequence {
	short := &sequence{limits: s.limits, calendar: s.calendar, grants: s.grants, steps: slices.Clone(s.steps)}
	for size := len(short.steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(short.steps); {
			steps := slices.Delete(slices.Clone(short.steps), from, from+size)
			without := &sequence{limits: s.limits, calendar: s.calendar, grants: s.grants, steps: steps}
			if without.playOn(w) != nil {
				short = without
			} else {
				from += size
			}
		}
	}
	return short
}

// String returns the limits and moves as text.
func (s *sequence) String() string {
	var b strings.Builder
	for i, l := range s.limits {
		fmt.Fprintf(&b, "limit %d: %s\n", i, describe(l))
	}
	for i, g := range s.grants {
		fmt.Fprintf(&b, "grant %d: %d units of limit %d, partition %d, from %dµs to %dµs\n", i, g.units, g.limit, g.partition, g.from, g.until)
	}
	for i := range s.steps {
		fmt.Fprintf(&b, "step %d: %s\n", i, &s.steps[i])
	}
	return b.String()
}

func describe(l enforcement.Limit) string {
	return fmt.Sprintf("%s %d per %s, burst %d, %s, rollover %d", l.Algorithm, l.Quota, l.Window, l.Burst, l.Anchor, l.MaxRollover)
}

// String returns the move as text.
func (m *move) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %dµs", m.at)
	if m.change >= 0 {
		fmt.Fprintf(&b, ", limit %d becomes %s", m.change, describe(m.to))
	}
	for i := range m.requests {
		a := &m.requests[i]
		fmt.Fprintf(&b, "; %s (calendar %d, skew %d, key %d, what %d, lease %d, ttl %d)",
			a.mode, a.calendar, a.skew, a.key, a.what, a.lease, a.ttl)
		for _, c := range a.charges {
			fmt.Fprintf(&b, " [limit %d partition %d group %d cost %d", c.limit, c.partition, c.group, c.cost)
			if c.back > 0 {
				fmt.Fprintf(&b, " at the revision before")
			}
			b.WriteString("]")
		}
	}
	return b.String()
}
