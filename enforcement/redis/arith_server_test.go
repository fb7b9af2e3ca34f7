//go:build !quick

package redis

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/testseed"
)

// arithCases is how many cases each helper is given.
const arithCases = 200_000

// arithScript computes one line of numbers after another: ARGV[1] is which
// helper, ARGV[2] the packed arguments.
const arithScript = `
local unpack1, pack, out = struct.unpack, struct.pack, {}
local pos, n = 1, #ARGV[2]
while pos <= n do
  local x, y
  if ARGV[1] == 'mul_add_div' then
    local a, b, c, m
    a, b, c, m, pos = unpack1('<i8i8i8i8', ARGV[2], pos)
    x, y = mul_add_div(a, b, c, m)
  elseif ARGV[1] == 'flow' then
    local need, b, P, Q
    need, b, P, Q, pos = unpack1('<i8i8i8i8', ARGV[2], pos)
    x, y = flow(need, b, P, Q), 0
  elseif ARGV[1] == 'refill' then
    local a, b, elapsed, P, Q, capacity
    a, b, elapsed, P, Q, capacity, pos = unpack1('<i8i8i8i8i8i8', ARGV[2], pos)
    x, y = refill(a, b, elapsed, P, Q, capacity)
  else
    local previous, rest, window
    previous, rest, window, pos = unpack1('<i8i8i8', ARGV[2], pos)
    x, y = fade(previous, rest, window), 0
  end
  if x == nil then x, y = -1, -1 end
  out[#out + 1] = pack('<i8i8', x, y)
end
return table.concat(out)`

// A luaArith runs the arithmetic helpers of the scripts on many cases in Redis.
type luaArith struct {
	t      *testing.T
	client *redis.Client
	script *redis.Script
}

func newLuaArith(t *testing.T) *luaArith {
	o, err := redis.ParseURL(servertest.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	o.ReadTimeout, o.DisableIdentity = time.Minute, true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return &luaArith{t: t, client: c, script: redis.NewScript(scriptText("arith.lua") + "\n" + arithScript)}
}

// compare runs the helper on arithCases cases and holds each result against want.
func (l *luaArith) compare(helper string, next func(*rand.Rand) []int64, want func([]int64) (x, y int64, known bool)) {
	l.t.Helper()
	seed := testseed.Seed(l.t)
	r := rand.New(rand.NewPCG(seed, 1))
	const batch = 4000
	for range arithCases / batch {
		cases, packed := make([][]int64, batch), []byte(nil)
		for i := range cases {
			cases[i] = next(r)
			packed = appendInts(packed, cases[i]...)
		}
		text, err := l.script.Run(l.t.Context(), l.client, nil, helper, packed).Text()
		if err != nil {
			l.t.Fatal(err)
		}
		if len(text) != 16*batch {
			l.t.Fatalf("%s: %d bytes of results", helper, len(text))
		}
		for i, c := range cases {
			b := []byte(text[16*i:])
			x, y := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
			if wx, wy, known := want(c); known && (x != wx || y != wy) {
				l.t.Fatalf("%s%v = %d, %d in Lua; want %d, %d (seed %d)", helper, c, x, y, wx, wy, seed)
			}
		}
	}
}

// upTo gives a number in [low, high], of any magnitude, often beside a power of
// two or at an end.
func upTo(r *rand.Rand, low, high int64) int64 {
	var n int64
	switch r.IntN(8) {
	case 0:
		n = low + r.Int64N(3)
	case 1:
		n = high - r.Int64N(3)
	case 2:
		n = int64(1)<<r.IntN(54) + r.Int64N(3) - 1
	case 3:
		n = []int64{1000, 60_000_000, 3_600_000_000, 86_400_000_000, 31_622_400_000_000, 700_000, 1_000_000_000_000, 1_000_003, 999_983_000}[r.IntN(9)]
	default:
		n = r.Int64N(int64(1) << (1 + r.IntN(53)))
	}
	return min(max(n, low), high)
}

func TestLuaMultipliesAndDividesExactly(t *testing.T) {
	t.Parallel()
	newLuaArith(t).compare("mul_add_div", func(r *rand.Rand) []int64 {
		a, b, m := upTo(r, 0, 1<<53-1), upTo(r, 0, 1<<45-1), upTo(r, 1, 1<<45-1)
		if r.IntN(3) == 0 && b > 0 { // the product beside a multiple of m
			if k := upTo(r, 0, (1<<53-1)/m); k > 0 {
				a, b = k, m
				m = max(b-r.Int64N(2), 1)
			}
		}
		return []int64{a, b, upTo(r, 0, 1<<50-1), m}
	}, func(c []int64) (int64, int64, bool) {
		hi, lo := bits.Mul64(uint64(c[0]), uint64(c[1]))
		lo, carry := bits.Add64(lo, uint64(c[2]), 0)
		hi += carry
		if hi >= uint64(c[3]) {
			return -1, -1, true
		}
		q, rem := bits.Div64(hi, lo, uint64(c[3]))
		switch {
		case q >= 1<<53:
			return -1, -1, true
		case q >= 1<<53-64: // either is allowed
			return 0, 0, false
		}
		return int64(q), int64(rem), true
	})
}

// randomBucket returns a meter at the bounds of valid limits.
func randomBucket(r *rand.Rand) *enforcement.Meter {
	l := enforcement.Limit{
		Algorithm: enforcement.TokenBucket,
		Quota:     upTo(r, 1, enforcement.MaxQuota),
		Window:    time.Duration(upTo(r, 1, enforcement.MaxWindow.Milliseconds())) * time.Millisecond,
		Burst:     upTo(r, 1, enforcement.MaxQuota),
	}
	return l.Compile(1)
}

func TestLuaFlowIsTheReference(t *testing.T) {
	t.Parallel()
	var meter enforcement.Meter
	newLuaArith(t).compare("flow", func(r *rand.Rand) []int64 {
		m := randomBucket(r)
		return []int64{upTo(r, 1, 2*enforcement.MaxQuota), upTo(r, 0, m.Q-1), m.P, m.Q}
	}, func(c []int64) (int64, int64, bool) {
		// A bucket that lacks need units of its capacity is full after flow.
		meter = enforcement.Meter{Algorithm: enforcement.TokenBucket, Rev: 1}
		meter.Quota, meter.Capacity, meter.P, meter.Q = 1, enforcement.MaxQuota, c[2], c[3]
		want := meter.ResetAfter(enforcement.State{Rev: 1, A: meter.Capacity - c[0], B: c[1]}, 0)
		return want, 0, want < 1<<53-64
	})
}

func TestLuaRefillIsTheReference(t *testing.T) {
	t.Parallel()
	newLuaArith(t).compare("refill", func(r *rand.Rand) []int64 {
		m := randomBucket(r)
		a := m.Capacity - upTo(r, 0, 2*m.Capacity) // from a full bucket down to the deepest debt
		return []int64{a, upTo(r, 0, m.Q-1), upTo(r, 1, 1<<53-1), m.P, m.Q, m.Capacity}
	}, func(c []int64) (int64, int64, bool) {
		m := enforcement.Meter{Algorithm: enforcement.TokenBucket, Rev: 1}
		m.Quota, m.P, m.Q, m.Capacity = 1, c[3], c[4], c[5]
		if c[0] >= m.Capacity {
			return 0, 0, false // Settle does not ask
		}
		s, _ := m.Settle(enforcement.State{Rev: 1, A: c[0], B: c[1]}, 1, c[2])
		return s.A, s.B, true
	})
}

func TestLuaFadeIsTheReference(t *testing.T) {
	t.Parallel()
	newLuaArith(t).compare("fade", func(r *rand.Rand) []int64 {
		window := upTo(r, 1, enforcement.MaxWindow.Milliseconds()) * 1000
		return []int64{upTo(r, 0, 1_000_000_000_000_000), upTo(r, 0, window), window}
	}, func(c []int64) (int64, int64, bool) {
		m := enforcement.Meter{Algorithm: enforcement.SlidingWindowCounter, Rev: 1}
		m.Quota, m.Window = 0, c[2]
		return -m.Left(enforcement.State{Rev: 1, B: c[0]}, c[2]-c[1]), 0, true
	})
}

// The words that the clocks and states of this package live by.
func TestScriptsSayWhatTheyTake(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"take.lua", "batch.lua", "single.lua"} {
		text := scriptText(name)
		for _, word := range []string{"KEYS", "ARGV[1]", "reply"} {
			if !strings.Contains(text[:strings.Index(text, "local ")], word) {
				t.Errorf("the head of %s does not explain %s", name, word)
			}
		}
	}
}
