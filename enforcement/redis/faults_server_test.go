//go:build !quick

package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// A reply that is lost leaves a client that retries with two charges, and no
// error. Ours says that it does not know, and there is one.
func TestLostReplyChargesOnce(t *testing.T) {
	t.Parallel()
	url := servertest.Redis(t)
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%t", silent), func(t *testing.T) {
			t.Parallel()
			proxy := servertest.StartProxy(t, url)

			o, err := goredis.ParseURL(proxy.URL())
			if err != nil {
				t.Fatal(err)
			}
			o.ReadTimeout, o.DisableIdentity = 300*time.Millisecond, true // and MaxRetries as it comes
			retrying := goredis.NewClient(o)
			defer func() { _ = retrying.Close() }()
			counter := newPrefix() + "counter"
			script := goredis.NewScript("return redis.call('INCR', KEYS[1])")
			if err := script.Load(t.Context(), retrying).Err(); err != nil {
				t.Fatal(err)
			}
			lost := proxy.Lose(servertest.Loss{Request: "evalsha", Silent: silent})
			if n, err := script.EvalSha(t.Context(), retrying, []string{counter}).Int(); n != 2 || err != nil {
				t.Errorf("with the client's retries: %d charges, %v; this test expects to see 2", n, err)
			}
			<-lost

			prefix := newPrefix()
			timeout := patience
			if silent {
				timeout = 300 * time.Millisecond
			}
			through := open(t, redis.Config{URL: proxy.URL(), Prefix: prefix, Timeout: timeout})
			direct := open(t, redis.Config{URL: url, Prefix: prefix})
			mustTake(t, direct, request(charge(1, perHour, 1))) // so that the script is known
			lost = proxy.Lose(servertest.Loss{Request: "evalsha", Silent: silent})
			outcome := take(t.Context(), through, request(charge(1, perHour, 1)))
			<-lost
			if outcome.Verdict != enforcement.Unknown || outcome.Err == nil {
				t.Errorf("verdict %s, %v; want unknown", outcome.Verdict, outcome.Err)
			}
			if n := used(t, direct, 1); n != 2 {
				t.Errorf("%d charges, want 1 beside the first", n)
			}
		})
	}
}

// Calls that were sent to a hung server are not charged when it continues.
func TestHungServerChargesNothingLater(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	l := open(t, redis.Config{URL: server.URL(), Timeout: 200 * time.Millisecond})
	eventually(t, "a first decision", func() bool {
		return take(t.Context(), l, request(charge(1, perHour, 1))).Verdict == enforcement.Granted
	})
	before, known := used(t, open(t, redis.Config{URL: server.URL()}), 1), evalshas(t, raw)
	ctx, stop := context.WithCancel(t.Context())
	probing := make(chan struct{})

	server.Pause()
	unknown := 0
	eventually(t, "the breaker opens", func() bool {
		o := take(t.Context(), l, request(charge(1, perHour, 1)))
		switch o.Verdict {
		case enforcement.Unknown:
			unknown++
		case enforcement.Failed:
			if !errors.Is(o.Err, enforcement.ErrNotReached) {
				t.Errorf("failed without ErrNotReached: %v", o.Err)
			}
		default:
			t.Errorf("a hung server decided: %s", o.Verdict)
		}
		return !l.Status().Reachable
	})
	if unknown == 0 {
		t.Error("no call was under way")
	}
	if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Verdict != enforcement.Failed {
		t.Errorf("with the breaker open: %s, %v", o.Verdict, o.Err)
	}
	server.Resume()
	go func() { defer close(probing); _ = l.Run(ctx) }()
	eventually(t, "the breaker closes", func() bool { return l.Status().Reachable })
	stop()
	<-probing
	eventually(t, "the server has seen what was sent while it hung", func() bool { return evalshas(t, raw) >= known+int64(unknown) })
	if n := used(t, open(t, redis.Config{URL: server.URL()}), 1); n != before {
		t.Errorf("%d charges after %d: %d calls were under way", n, before, unknown)
	}
}

// Unanswered calls open the breaker when Run is not running.
func TestEngineOpensTheBreaker(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL(), Timeout: timeout}) // and nobody runs Run
	limit := perHour
	plan, err := enforcement.CompilePlan("p", 1, []enforcement.RuleSpec{{Policy: "a", Limits: []enforcement.RuleLimit{{
		Limit: enforcement.Limit{Name: "l1", Algorithm: limit.Algorithm, Quota: limit.Quota, Window: time.Hour}, Cell: 1, Meter: limit,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	engine := enforcement.NewEngine(l, enforcement.Config{})
	subject, check := &enforcement.Subject{Number: 1, Home: "01", Plan: plan}, &enforcement.Check{Cost: 1}
	decide := func() (d enforcement.Decision) {
		engine.Decide(t.Context(), subject, check, &d)
		return d
	}
	eventually(t, "a first decision", func() bool { return !decide().Degraded })
	server.Pause()
	defer server.Resume()
	eventually(t, "the breaker opens", func() bool {
		if !decide().Degraded {
			t.Error("a hung server decided")
		}
		return !l.Status().Reachable
	})
}

// evalshas is how many scripts the server has run by hash.
func evalshas(t *testing.T, c *goredis.Client) (n int64) {
	t.Helper()
	text, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, found := strings.Cut(text, "cmdstat_evalsha:calls="); found {
		_, _ = fmt.Sscanf(rest, "%d", &n)
	}
	return n
}

// A call after its deadline is rejected as late, and is sent again.
func TestServerClockAheadIsLearned(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	l := open(t, redis.Config{URL: url, Prefix: prefix})
	redis.SetClock(l, time.Now().Add(-time.Hour)) // the estimate is an hour late
	if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Verdict != enforcement.Granted {
		t.Errorf("verdict %s, %v", o.Verdict, o.Err)
	}
	if n := used(t, l, 1); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

func TestKilledServerIsFoundAgain(t *testing.T) {
	t.Parallel()
	for _, probes := range []bool{true, false} {
		t.Run(fmt.Sprintf("probes=%t", probes), func(t *testing.T) {
			t.Parallel()
			server := servertest.StartRedis(t)
			l := open(t, redis.Config{URL: server.URL(), Timeout: 500 * time.Millisecond})
			if probes {
				running(t, l)
			}
			ask := func() enforcement.Outcome { return take(t.Context(), l, request(charge(1, perHour, 1))) }
			eventually(t, "a first decision", func() bool { return ask().Verdict == enforcement.Granted })
			server.Kill()
			eventually(t, "the breaker opens", func() bool {
				if o := ask(); o.Verdict.Decided() || o.Err == nil {
					t.Fatalf("a dead server decided: %s", o.Verdict)
				}
				return !l.Status().Reachable
			})
			s := l.Status()
			if s.BreakerOpened == 0 || s.Err == nil || s.Since.IsZero() {
				t.Errorf("status %+v", s)
			}
			server.Restart()
			eventually(t, "decisions again", func() bool { return ask().Verdict == enforcement.Granted })
			if s := l.Status(); !s.Reachable || s.Err != nil {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestServerDownAtStart(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	server.Kill()
	l := open(t, redis.Config{URL: server.URL(), Timeout: 500 * time.Millisecond})
	running(t, l)
	o := take(t.Context(), l, request(charge(1, perHour, 1)))
	if o.Verdict != enforcement.Failed || !errors.Is(o.Err, enforcement.ErrNotReached) {
		t.Errorf("verdict %s, %v", o.Verdict, o.Err)
	}
	server.Restart()
	eventually(t, "decisions", func() bool {
		return take(t.Context(), l, request(charge(1, perHour, 1))).Verdict == enforcement.Granted
	})
	if v := l.Status().Version; v == "" {
		t.Error("no version")
	}
}

// If the script cache is emptied, callers see no error.
func TestScriptFlushIsNotSeen(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
	var flushing sync.WaitGroup
	var asking atomic.Int32
	const callers, each = 4, 300
	asking.Store(callers)
	flushing.Go(func() {
		for asking.Load() > 0 {
			if err := raw.ScriptFlush(context.Background()).Err(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for caller := range callers {
		flushing.Go(func() {
			defer asking.Add(-1)
			for range each {
				o := take(context.Background(), l, request(charge(uint32(caller+1), perHour, 1)))
				if o.Verdict != enforcement.Granted {
					t.Errorf("verdict %s, %v", o.Verdict, o.Err)
					return
				}
			}
		})
	}
	flushing.Wait()
	for caller := range callers {
		if n := used(t, l, uint32(caller+1)); n != each {
			t.Errorf("%d charges, want %d", n, each)
		}
	}
	if l.Status().ScriptLoads == 0 {
		t.Error("no flush fell between two calls")
	}
}

// A server whose memory is full charges a request whole or not at all.
func TestMemoryFullChargesNothingByHalves(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t, "--maxmemory-policy", "noeviction")
	raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
	all := request(charge(1, perHour, 1), charge(2, logPerHour, 1), charge(3, perHour, 1))
	mustTake(t, l, all)
	if err := raw.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []enforcement.Mode{enforcement.Enforce, enforcement.Force, enforcement.Refund} {
		r := all
		r.Mode = mode
		o := take(t.Context(), l, r)
		if o.Verdict != enforcement.Failed || o.Err == nil || !strings.Contains(o.Err.Error(), "memory") {
			t.Errorf("%s: verdict %s, %v", mode, o.Verdict, o.Err)
		}
	}
	if !l.Status().Reachable {
		t.Error("the breaker opened though the server answers")
	}
	if err := raw.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	peek := request(charge(1, perHour, 0), charge(2, logPerHour, 0), charge(3, perHour, 0))
	peek.Mode = enforcement.Peek
	for i, c := range mustTake(t, l, peek).Charges {
		if c.State.A != 1 {
			t.Errorf("charge %d has %d, want 1", i, c.State.A)
		}
	}
}

// Error replies are named, and say that nothing was charged.
func TestErrorRepliesChargeNothing(t *testing.T) {
	t.Parallel()
	t.Run("replica", func(t *testing.T) {
		t.Parallel()
		server := servertest.StartRedis(t)
		raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
		if err := raw.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Verdict != enforcement.Failed || !strings.Contains(o.Err.Error(), "replica") {
			t.Errorf("verdict %s, %v", o.Verdict, o.Err)
		}
		if err := raw.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		if n := used(t, l, 1); n != 0 {
			t.Errorf("%d charges", n)
		}
	})
	t.Run("too few replicas", func(t *testing.T) {
		t.Parallel()
		server := servertest.StartRedis(t)
		raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
		if err := raw.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
			t.Fatal(err)
		}
		if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Verdict != enforcement.Failed || !strings.Contains(o.Err.Error(), "NOREPLICAS") {
			t.Errorf("verdict %s, %v", o.Verdict, o.Err)
		}
	})
	t.Run("busy", func(t *testing.T) {
		t.Parallel()
		if v := redisVersion(t); strings.HasPrefix(v, "6.") {
			t.Skipf("Redis %s does not know busy-reply-threshold, which came with 7.0", v)
		}
		server := servertest.StartRedis(t, "--busy-reply-threshold", "1")
		raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
		looping := make(chan struct{})
		go func() {
			defer close(looping)
			_ = client(t, server.URL()).Eval(context.Background(), "while true do end", nil).Err()
		}()
		eventually(t, "the other script runs", func() bool { return goredis.HasErrorPrefix(raw.Ping(t.Context()).Err(), "BUSY") })
		if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Verdict != enforcement.Failed || !strings.Contains(o.Err.Error(), "BUSY") {
			t.Errorf("verdict %s, %v", o.Verdict, o.Err)
		}
		eventually(t, "the other script ends", func() bool { return raw.ScriptKill(t.Context()).Err() == nil })
		<-looping
		mustTake(t, l, request(charge(1, perHour, 1)))
	})
	t.Run("password changed", func(t *testing.T) {
		t.Parallel()
		server := servertest.StartRedis(t)
		raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
		if err := raw.ConfigSet(t.Context(), "requirepass", "another").Err(); err != nil {
			t.Fatal(err)
		}
		if err := client(t, strings.Replace(server.URL(), "redis://default:", "redis://x:", 1)).Ping(t.Context()).Err(); err == nil {
			t.Error("a wrong user came in")
		}
		if err := raw.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "new connections are refused", func() bool {
			o := take(t.Context(), l, request(charge(1, perHour, 1)))
			if o.Verdict.Decided() {
				t.Fatalf("verdict %s", o.Verdict)
			}
			return o.Verdict == enforcement.Failed && strings.Contains(o.Err.Error(), "WRONGPASS")
		})
	})
}

// All nodes must make keys alike.
func TestOtherFormatIsRefused(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	open(t, redis.Config{URL: url, Prefix: prefix})
	open(t, redis.Config{URL: url, Prefix: prefix}) // the same is welcome
	_, err := redis.New(t.Context(), redis.Config{URL: url, Prefix: prefix, Tags: 32, Timeout: patience})
	if err == nil || !strings.Contains(err.Error(), prefix+"format") || !strings.Contains(err.Error(), "tags=64") {
		t.Errorf("32 tags beside 64: %v", err)
	}
	if err := client(t, url).Set(t.Context(), prefix+"format", "headgate format=99 tags=64", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err = redis.New(t.Context(), redis.Config{URL: url, Prefix: prefix, Timeout: patience}); err == nil || !strings.Contains(err.Error(), "format=99") {
		t.Errorf("a later format: %v", err)
	}
	raw := client(t, url)
	raw.Del(t.Context(), prefix+"format")
	raw.RPush(t.Context(), prefix+"format", "x")
	if _, err = redis.New(t.Context(), redis.Config{URL: url, Prefix: prefix, Timeout: patience}); err == nil || !strings.Contains(err.Error(), "another type") {
		t.Errorf("a list: %v", err)
	}
}

// The commands that the package's documentation lists are enough.
func TestUserWithTheDocumentedCommands(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	for name, more := range map[string][]any{
		"bare": nil,
		"full": {"+info", "+config|get", "+scan"},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := newPrefix()
			rules := append([]any{
				"ACL", "SETUSER", name, "on", ">secret", "resetkeys", "~" + prefix + "*", "-@all",
				"+evalsha", "+eval", "+time", "+mget", "+get", "+set", "+getrange", "+strlen", "+append", "+setrange", "+pexpire", "+del",
			}, more...)
			if err := raw.Do(t.Context(), rules...).Err(); err != nil {
				t.Fatal(err)
			}
			_, address, _ := strings.Cut(server.URL(), "@")
			l := open(t, redis.Config{URL: "redis://" + name + ":secret@" + address, Prefix: prefix})
			long := enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 1000, Window: time.Hour}.Compile(1)
			for range 100 { // past the length up to which logs are rewritten whole
				mustTake(t, l, request(charge(1, perHour, 1), charge(2, long, 1)))
			}
			r := request(charge(1, perHour, 1))
			r.Mode = enforcement.Reset
			mustTake(t, l, r)
			if s := l.Status(); s.Err != nil || (s.Version == "") != (more == nil) || (s.MaxMemoryPolicy == "") != (more == nil) {
				t.Errorf("status %+v", s)
			}
			if err := raw.Do(t.Context(), "ACL", "SETUSER", name, "-set").Err(); err != nil {
				t.Fatal(err)
			}
			if o := take(t.Context(), l, request(charge(3, perHour, 1))); o.Verdict.Decided() || o.Err == nil {
				t.Errorf("without SET: %s, %v", o.Verdict, o.Err)
			}
		})
	}
}

// New connections use the current password, so that its rotation needs no restart.
func TestRotatedPassword(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	acl := func(rules ...any) {
		t.Helper()
		if err := raw.Do(t.Context(), append([]any{"ACL", "SETUSER", "headgate"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	acl("on", ">first", "~*", "+@all")
	_, address, _ := strings.Cut(server.URL(), "@")
	var password atomic.Pointer[string]
	rotate := func(to string) { password.Store(&to) }
	rotate("first")
	reread := func() (string, error) { return "redis://headgate:" + *password.Load() + "@" + address, nil }
	first, _ := reread()
	l := open(t, redis.Config{URL: first, Reread: reread})
	running(t, l)
	mustTake(t, l, request(charge(1, perHour, 1)))

	acl("resetpass", ">second")
	if err := raw.Do(t.Context(), "CLIENT", "KILL", "USER", "headgate").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the former password is refused", func() bool {
		return !take(t.Context(), l, request(charge(1, perHour, 1))).Verdict.Decided()
	})
	rotate("second")
	eventually(t, "the new password is in use", func() bool {
		return take(t.Context(), l, request(charge(1, perHour, 1))).Verdict.Decided()
	})
}

// A strict Limiter does not start with a Redis that may evict counters, and does not
// stop when the policy changes later.
func TestStrictEviction(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	raw := client(t, server.URL())
	config := redis.Config{URL: server.URL(), Prefix: newPrefix(), Timeout: patience, Strict: true}
	if l, err := redis.New(t.Context(), config); err == nil || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("with allkeys-lru: %v, %v", l, err)
	}
	if err := raw.Do(t.Context(), "ACL", "SETUSER", "few", "on", ">few", "~*", "+@all", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(server.URL(), "@")
	unread := config
	unread.URL = "redis://few:few@" + address
	if l, err := redis.New(t.Context(), unread); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("with a policy that cannot be read: %v, %v", l, err)
	}
	policy := func(to string) {
		if err := raw.ConfigSet(t.Context(), "maxmemory-policy", to).Err(); err != nil {
			t.Fatal(err)
		}
	}
	policy("noeviction")
	l := open(t, config)
	running(t, l)
	policy("allkeys-lru")
	if err := raw.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "checks are decided", func() bool {
		return take(t.Context(), l, request(charge(1, perHour, 1))).Verdict.Decided()
	})
}

func TestEvictionIsTold(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	var text lockedBuffer
	l := open(t, redis.Config{URL: server.URL(), Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if s := l.Status(); s.MaxMemoryPolicy != "allkeys-lru" || !s.Evicts() {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(text.String(), "noeviction") {
		t.Errorf("logged: %s", text.String())
	}
}

// A lockedBuffer is written by a logger and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A request whose context has ended is not sent.
func TestEndedContextIsNotServed(t *testing.T) {
	t.Parallel()
	l := open(t, redis.Config{URL: servertest.Redis(t), Prefix: newPrefix()})
	mustTake(t, l, request(charge(1, perHour, 1)))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		o := take(gone, l, request(charge(1, perHour, 1)))
		if o.Verdict != enforcement.Failed || !errors.Is(o.Err, enforcement.ErrNotReached) || !errors.Is(o.Err, context.Canceled) {
			t.Errorf("verdict %s, %v", o.Verdict, o.Err)
		}
	}
	if n := used(t, l, 1); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
	if !l.Status().Reachable {
		t.Error("callers that left opened the breaker")
	}
}

// Many homes, more cells than one call takes, and one counter in each: a batch
// is decided as one by one.
func TestBatchIsSplitInOrder(t *testing.T) {
	t.Parallel()
	l := open(t, redis.Config{URL: servertest.Redis(t)})
	var requests []enforcement.Request
	three := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 3, Window: time.Hour}.Compile(1)
	for i := range 1000 {
		r := request(charge(1, three, 1), charge(uint32(2+i%100), perHour, 1))
		r.Home = fmt.Sprintf("%02x", i%7)
		requests = append(requests, r)
	}
	outcomes := make([]enforcement.Outcome, len(requests))
	l.Take(t.Context(), requests, outcomes)
	granted := map[string]int{}
	for i := range outcomes {
		o, home := &outcomes[i], requests[i].Home
		want := enforcement.Granted
		if granted[home] == 3 {
			want = enforcement.Refused
		}
		if o.Verdict != want || len(o.Charges) != 2 {
			t.Fatalf("request %d at home %s: %s, %v; want %s", i, home, o.Verdict, o.Err, want)
		}
		if want == enforcement.Granted {
			granted[home]++
		}
	}
	if len(granted) != 7 {
		t.Errorf("granted: %v", granted)
	}
}

// What cannot be asked is not, and does not hinder its neighbours.
func TestImpossibleRequestsFailAlone(t *testing.T) {
	t.Parallel()
	l := open(t, redis.Config{URL: servertest.Redis(t)})
	bad := []enforcement.Request{
		request(charge(1, perHour, -1)),
		request(charge(1, perHour, 1<<62)),
		request(enforcement.Charge{Key: key(1), Meter: perHour, Rev: 0, Cost: 1}),
		{Home: "07", Mode: 99, Charges: []enforcement.Charge{charge(1, perHour, 1)}},
		{Home: "", Charges: []enforcement.Charge{charge(1, perHour, 1)}},
		{Home: "}", Charges: []enforcement.Charge{charge(1, perHour, 1)}},
		request(make([]enforcement.Charge, 5000)...),
	}
	requests := append(bad, request(charge(1, perHour, 1)), request())
	outcomes := make([]enforcement.Outcome, len(requests))
	l.Take(t.Context(), requests, outcomes)
	for i := range bad {
		if outcomes[i].Verdict != enforcement.Failed || outcomes[i].Err == nil {
			t.Errorf("request %d: %s, %v", i, outcomes[i].Verdict, outcomes[i].Err)
		}
	}
	for i := len(bad); i < len(requests); i++ {
		if outcomes[i].Verdict != enforcement.Granted {
			t.Errorf("request %d: %s, %v", i, outcomes[i].Verdict, outcomes[i].Err)
		}
	}
	if n := used(t, l, 1); n != 1 {
		t.Errorf("%d charges", n)
	}
}

// Calls that Redis answered are timed, the others not: how long those took says
// nothing of Redis.
func TestAnsweredCallsAreTimed(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	var mu sync.Mutex
	var times []time.Duration
	heard := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		return len(times)
	}
	began := time.Now()
	l := open(t, redis.Config{URL: server.URL(), Observe: func(took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		times = append(times, took)
	}})
	mustTake(t, l, request(charge(1, perHour, 1))) // the server does not know the script yet: that may be two calls
	before := heard()
	if before < 2 { // the time was asked for, and this one
		t.Errorf("%d calls were timed", before)
	}
	for range 3 {
		mustTake(t, l, request(charge(1, perHour, 1)))
	}
	if n := heard() - before; n != 3 {
		t.Errorf("%d of 3 calls were timed", n)
	}
	all := time.Since(began)
	server.Kill()
	before = heard()
	for range 10 { // until the breaker is open, and beyond
		if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Err == nil {
			t.Fatal("a dead server answered")
		}
	}
	if n := heard() - before; n != 0 {
		t.Errorf("%d calls were timed that nobody answered", n)
	}
	sum := time.Duration(0)
	for _, took := range times {
		if took <= 0 {
			t.Errorf("a call took %s", took)
		}
		sum += took
	}
	if sum > all { // they came one after the other
		t.Errorf("together %s within %s", sum, all)
	}
}

// redisVersion returns the version of the server that the tests use.
func redisVersion(t *testing.T) string {
	t.Helper()
	info := client(t, servertest.Redis(t)).Info(t.Context(), "server").Val()
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, found := strings.Cut(version, "\r\n")
	if !found || version == "" {
		t.Fatalf("the server does not say its version: %q", info)
	}
	return version
}
