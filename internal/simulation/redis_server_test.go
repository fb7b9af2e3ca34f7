//go:build !quick

package simulation

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/testseed"
)

// onRedis plays on the shared server, under a separate prefix.
func onRedis(t *testing.T) NewLimiter {
	url := servertest.Redis(t)
	return func(now func() int64) (enforcement.Limiter, func(), error) {
		l, err := redis.New(t.Context(), redis.Config{URL: url, Prefix: "hg-sim-" + rand.Text() + ":", Timeout: time.Minute, Now: now})
		if err != nil {
			return nil, nil, err
		}
		return l, func() {
			if err := l.DeleteAll(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("delete the keys: %v", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}, nil
	}
}

// randomScenario plays with numbers where algorithms differ: few units, short
// windows, steps back, edits.
func randomScenario(r *mathrand.Rand, n int) string {
	algorithms := []string{"fixed_window", "sliding_window_log", "sliding_window_counter", "token_bucket", "gcra", "concurrency"}
	limits := func() string {
		var list []string
		for i := range 1 + r.IntN(3) {
			a := algorithms[r.IntN(len(algorithms))]
			extra := ""
			switch a {
			case "token_bucket", "gcra":
				if r.IntN(2) == 0 {
					extra = fmt.Sprintf(`,"burst":%d`, 1+r.IntN(20))
				}
			case "fixed_window", "sliding_window_counter":
				extra = fmt.Sprintf(`,"anchor":%q`, []string{"first_hit", "clock"}[r.IntN(2)])
			}
			quota := r.IntN(13)
			if a != "sliding_window_log" && a != "concurrency" && r.IntN(10) == 0 {
				quota = 1_000_000_000_000 - r.IntN(3)
			}
			list = append(list, fmt.Sprintf(`{"name":"n%d","algorithm":%q,"quota":%d,"window_ms":%d%s}`, i, a, quota, 1+r.IntN(5000), extra))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	var steps []string
	at := 10_000
	for range 30 {
		at = max(at+r.IntN(4000)-600, 0)
		op := []string{"check", "check", "check", "check", "peek", "force", "refund", "reset", "take_up_to", "set_limits", "release", "acquire"}[r.IntN(12)]
		step := fmt.Sprintf(`{"at_ms":%d,"op":%q,"cost":%d,"repeat":%d,"key":"%d"`, at, op, r.IntN(8), 1+r.IntN(70)*r.IntN(2), r.IntN(2))
		switch {
		case op == "set_limits":
			step += `,"limits":` + limits()
		case op == "release" || op != "reset" && r.IntN(2) == 0:
			step += fmt.Sprintf(`,"lease":"%d"`, r.IntN(3))
		}
		steps = append(steps, step+"}")
	}
	return fmt.Sprintf(`{"id":"%d","start_ms":%d,"limits":%s,"steps":[%s]}`, n, r.Int64N(2)*1_800_000_000_000, limits(), strings.Join(steps, ","))
}

func TestRedisGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	const scenarios = 200
	seed := testseed.Seed(t)
	r := mathrand.New(mathrand.NewPCG(seed, 1))
	var lines []string
	for i := range scenarios {
		lines = append(lines, randomScenario(r, i))
	}
	for _, s := range stories {
		var steps []string
		for _, step := range s.steps {
			steps = append(steps, "{"+step[0]+"}")
		}
		lines = append(lines, `{"limits":[`+s.limits+`],"steps":[`+strings.Join(steps, ",")+`]}`)
	}
	here, there := run(t, Config{}, lines...), run(t, Config{NewLimiter: onRedis(t)}, lines...)
	for i, line := range lines {
		if strings.Contains(here[i], `"error"`) {
			t.Fatalf("%s\n%s", line, here[i])
		}
		if here[i] != there[i] {
			t.Errorf("seed %d: %s\nin process: %s\non Redis:   %s", seed, line, here[i], there[i])
		}
	}
}

// Reservations, idempotent checks and grants have the same answers on Redis and in process, also where a
// reservation ends between two steps.
func TestEngineStepsOnRedis(t *testing.T) {
	t.Parallel()
	const limits = `"limits":[{"name":"q","algorithm":"fixed_window","quota":10,"window":"1h","warn_at":[50]},{"name":"b","algorithm":"token_bucket","quota":10,"window":"1h"}]`
	const steps = `"steps":[{"at_ms":0,"op":"reserve","reservation":"a","cost":6,"ttl_ms":60000},{"at_ms":59999,"op":"peek","cost":0},{"at_ms":60000,"op":"peek","cost":0},
		{"at_ms":60000,"op":"settle","reservation":"a","cost":1},{"at_ms":61000,"op":"reserve","reservation":"b","cost":5,"ttl_ms":60000},
		{"at_ms":62000,"op":"extend","reservation":"b","ttl_ms":90000},{"at_ms":150000,"op":"give_back","reservation":"b"},
		{"at_ms":150000,"cost":3,"repeat":2,"idempotency_key":"k"},{"at_ms":150000,"op":"grant","units":4,"ttl_ms":1000},{"at_ms":150000,"op":"take_up_to","cost":50},{"at_ms":151000,"op":"peek"}]`
	for _, expiry := range []string{"keep", "refund"} {
		line := strings.ReplaceAll(`{"id":"a","reservation_expiry":"`+expiry+`",`+limits+`,`+steps+`}`, "\n", "")
		here, there := run(t, Config{}, line), run(t, Config{NewLimiter: onRedis(t)}, line)
		if here[0] != there[0] || strings.Contains(here[0], `"error"`) {
			t.Errorf("%s: in process\n%s\non Redis\n%s", expiry, here[0], there[0])
		}
	}
}
