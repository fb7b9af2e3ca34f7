package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	breakAfter    = 5                      // unanswered calls in a row open the breaker
	suspectAfter  = 1                      // slices that a call has waited when a probe is sent
	silentAfter   = 4                      // slices that a silent probe has waited; suspectAfter+silentAfter are the whole wait of a call
	probeEvery    = 200 * time.Millisecond // while the breaker is open, a quarter more or less
	lookEvery     = time.Second            // while it is closed and no call is made
	policyEvery   = time.Minute
	memoryEvery   = 5 * time.Second
	tellEvery     = time.Minute // between two lines of one kind in the log
	minVersion    = "6.2"
	formatVersion = 1 // of keys and values
)

// A Status is what readiness and metrics say of Redis.
type Status struct {
	// Reachable is false while the breaker is open: Take then answers Failed at
	// once, and probes look for Redis.
	Reachable bool
	// Since is when Reachable last changed.
	Since time.Time
	// Err is why it is not reachable.
	Err error
	// Version of the server, "" while unknown.
	Version string
	// MaxMemoryPolicy of the server, "" while unknown. Any but "noeviction" may
	// forget counters, and so hand out quota twice.
	MaxMemoryPolicy string
	// Mismatches is how many requests the script and the reference decided
	// differently. It should stay 0.
	Mismatches int64
	// Unreadable is how many values were not ours to read and counted as new.
	Unreadable int64
	// ScriptLoads is how often the server had to be sent the script's text.
	ScriptLoads int64
	// BreakerOpened is how often the breaker opened.
	BreakerOpened int64
	// Calls is how many script calls were answered.
	Calls int64
	// Recalled is how many requests were denied from the memory of denials.
	Recalled int64
	// Refusal is set while Redis answers calls and refuses to write.
	Refusal Refusal
	// Loss is the last time at which Redis was found without data that it had, and
	// Losses how often that happened since the start.
	Loss   Loss
	Losses int64
	// UsedMemory and MaxMemory of the server in bytes, 0 while unknown; MaxMemory is 0
	// too if there is no limit.
	UsedMemory, MaxMemory int64
	// Epoch names the data that Redis has: another epoch is other data. "" before
	// the first pulse.
	Epoch string
}

// Evicts reports whether Redis is known to forget counters when memory is short.
func (s *Status) Evicts() bool { return s.MaxMemoryPolicy != "" && s.MaxMemoryPolicy != "noeviction" }

// Status says how Redis is. It asks nothing of Redis.
func (l *Limiter) Status() Status {
	h := &l.health
	h.mu.Lock()
	defer h.mu.Unlock()
	return Status{
		Reachable: h.closed.Load(), Since: h.since, Err: h.err,
		Version: h.version, MaxMemoryPolicy: h.policy,
		Mismatches: h.mismatches.n.Load(), Unreadable: h.unreadable.n.Load(),
		ScriptLoads: h.loads.Load(), BreakerOpened: h.opened.Load(), Calls: h.calls.Load(), Recalled: l.denials.answered.Load(),
		Refusal: h.refusing, Loss: h.marks.loss, Losses: h.marks.count, Epoch: h.marks.epoch,
		UsedMemory: h.usedMemory, MaxMemory: h.maxMemory,
	}
}

// health is what is known of Redis, and the breaker.
//
// Two things feed the breaker: calls that were written to a connection and not
// answered within the deadline, and probes on a connection of their own. Waiting
// inside this process feeds it nothing.
//
// The breaker opens when a call and a probe beside it are not answered, after
// breakAfter unanswered calls in a row, when a probe cannot connect, and when two
// probes in a row are not answered while no call is. It closes when verify
// succeeds.
type health struct {
	closed   atomic.Bool  // the breaker: calls are made
	failures atomic.Int32 // unanswered calls and probes since the last answer
	probing  atomic.Bool  // a probe is under way
	silent   atomic.Bool  // it has waited silentAfter slices
	spoken   atomic.Int64 // when the last answered call was sent, Unix milliseconds
	asked    chan struct{}

	loads, opened, calls   atomic.Int64
	mismatches, unreadable tally

	while atomic.Pointer[context.Context] // ends when the breaker opens

	mu      sync.Mutex
	running bool // Run probes
	nextTry time.Time
	since   time.Time
	open    context.CancelFunc // ends while
	err     error              // why the breaker is open
	refusal error              // Redis answers, and must not be used
	version string
	policy  string

	refusing  Refusal
	refusedAt time.Time // when a write was refused last
	marks     marks

	usedMemory, maxMemory int64
}

func (h *health) start(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
	h.marks.node = randomID()
	h.asked = make(chan struct{}, 1)
	h.renew()
}

// renew makes the context of the calls that are made from now on. h.mu is held.
func (h *health) renew() {
	ctx, cancel := context.WithCancel(context.Background())
	h.while.Store(&ctx)
	h.open = cancel
}

// whileClosed returns a context that ends when the breaker opens.
func (h *health) whileClosed() context.Context { return *h.while.Load() }

func (h *health) refused() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refusal
}

func (h *health) lastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return errors.New("not connected yet")
	}
	return h.err
}

// unanswered notes a call that was written and ended without an answer.
func (l *Limiter) unanswered(err error) {
	h := &l.health
	if h.failures.Add(1) >= breakAfter || h.silent.Load() {
		h.trip(err, l.log)
	}
	if !h.suspect() {
		_ = l.probeOnce(context.Background()) // no Run does it
	}
}

// suspect asks Run for a probe now. It returns false when Run is not running.
func (h *health) suspect() bool {
	select {
	case h.asked <- struct{}{}:
	default: // asked already
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// probeIsSilent notes that a probe has waited for silentAfter slices. The other
// commands of the probe's connection say nothing. On a cluster a probe reaches any
// of the servers, so its silence does not explain a call.
func (l *Limiter) probeIsSilent() {
	h := &l.health
	if l.clocks.byHome || !h.probing.Load() {
		return
	}
	h.silent.Store(true)
	if h.failures.Load() > 0 {
		h.trip(errSilent, l.log)
	}
}

var errSilent = errors.New("redis: calls and probes are not answered")

// trip opens the breaker.
func (h *health) trip(err error, log *slog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed.CompareAndSwap(true, false) {
		return
	}
	now := time.Now()
	h.opened.Add(1)
	h.err, h.since, h.nextTry = err, now, now.Add(probeEvery)
	h.open()
	log.Warn("redis does not answer; asking no more until it does", "error", err)
}

// succeeded notes an answer to a call or a probe.
func (h *health) succeeded(sent time.Time) {
	if h.failures.Load() != 0 {
		h.failures.Store(0)
	}
	h.spoken.Store(sent.UnixMilli())
}

// answered notes a call that Redis answered.
func (l *Limiter) answered(sent time.Time) {
	l.health.succeeded(sent)
	l.config.Observe(time.Since(sent))
}

// tryAgain lets one caller at a time look whether Redis is back, when nobody
// runs Run.
func (l *Limiter) tryAgain(ctx context.Context) bool {
	h, now := &l.health, time.Now()
	h.mu.Lock()
	turn := !h.running && !now.Before(h.nextTry)
	if turn {
		h.nextTry = now.Add(probeEvery)
	}
	h.mu.Unlock()
	return turn && l.verify(ctx) == nil
}

// Run looks for Redis while it is away, and notices when it goes away between
// calls, when it refuses writes, and when it loses data. Once a minute it reads
// whether Redis may evict. It returns nil when ctx ends. Without Run, now and then
// a Take looks whether Redis is back.
func (l *Limiter) Run(ctx context.Context) error {
	l.health.setRunning(true)
	defer l.health.setRunning(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var memoryAt time.Time
	for policyAt, pulseAt := time.Now().Add(policyEvery), time.Now().Add(pulseEvery); ; {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-l.health.asked:
			asked = true
		case <-timer.C:
		}
		if !l.health.closed.Load() {
			_ = l.verify(ctx) // the status has the error
		} else if now := time.Now(); now.After(policyAt) {
			l.readPolicy(ctx)
			policyAt = now.Add(policyEvery)
		} else if asked || now.UnixMilli()-l.health.spoken.Load() >= lookEvery.Milliseconds() {
			_ = l.probeOnce(ctx) // the breaker has the error
		}
		if now := time.Now(); now.After(pulseAt) && l.health.closed.Load() && l.pulse(ctx) {
			pulseAt = now.Add(pulseEvery)
			l.countKeys(ctx)
			if now.After(memoryAt) {
				l.readMemory(ctx)
				memoryAt = now.Add(memoryEvery)
			}
		}
		timer.Reset(probeEvery*3/4 + rand.N(probeEvery/2))
	}
}

// probeOnce asks Redis for its time on the probe's connection. If the connection
// was closed, it tries another: a server that restarted answers there.
func (l *Limiter) probeOnce(ctx context.Context) error {
	sent := time.Now()
	err := l.readTime(ctx)
	if err != nil && !isReply(err) && !isTimeout(err) {
		err = l.readTime(ctx)
	}
	h := &l.health
	if err == nil || isReply(err) || ctx.Err() != nil || h.spoken.Load() >= sent.UnixMilli() {
		return err
	}
	if h.failures.Add(1) > 1 || !isTimeout(err) {
		h.trip(err, l.log)
	} else {
		h.suspect() // the next probe decides
	}
	return err
}

func (h *health) setRunning(running bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = running
}

// verify reaches Redis, and makes sure that its keys may be used by this
// version of Headgate. It closes the breaker, or notes why it stays open.
func (l *Limiter) verify(ctx context.Context) error {
	version, refusal, err := l.meet(ctx)
	h := &l.health
	h.mu.Lock()
	if refusal != nil && h.refusal == nil {
		l.log.Error("redis must not be used", "error", refusal)
	}
	h.refusal = refusal
	if err == nil {
		err = refusal
	}
	if err != nil {
		h.err = err
		h.mu.Unlock()
		return err
	}
	h.version, h.err = version, nil
	h.failures.Store(0)
	again := h.opened.Load() > 0
	if h.closed.CompareAndSwap(false, true) {
		h.since = time.Now()
		h.renew()
		if again {
			l.log.Info("redis answers again")
		}
	}
	h.mu.Unlock()
	l.pulse(ctx)
	l.readPolicy(ctx)
	return nil
}

// meet reads the clock and the version of Redis and checks the format of the keys,
// before the first call. refusal says why this Redis must not be used. err means that
// Redis could not be asked.
func (l *Limiter) meet(ctx context.Context) (version string, refusal, err error) {
	if err := l.readTime(ctx); err != nil {
		return "", nil, err
	}
	info, err := l.probe.Info(ctx, "server").Result()
	if err != nil && !isReply(err) {
		return "", nil, fmt.Errorf("redis: ask for the version: %w", err)
	}
	if version = infoField(info, "redis_version"); version != "" && older(version, minVersion) {
		return version, fmt.Errorf("redis: the server's version is %s; Headgate needs %s or later", version, minVersion), nil
	}
	if valkey := infoField(info, "valkey_version"); valkey != "" {
		version = "valkey " + valkey
	}
	refusal, err = l.checkFormat(ctx)
	return version, refusal, err
}

func (l *Limiter) readTime(ctx context.Context) error {
	sent := time.Now()
	l.health.probing.Store(true)
	now, err := l.probe.Time(ctx).Result()
	l.health.probing.Store(false)
	l.health.silent.Store(false)
	if err != nil {
		return fmt.Errorf("redis: ask for the time: %w", err)
	}
	l.clocks.learn("", sent, now.UnixMicro())
	l.answered(sent)
	return nil
}

// checkFormat makes sure that all nodes make keys alike: others would split
// counters in silence.
func (l *Limiter) checkFormat(ctx context.Context) (refusal, err error) {
	key := l.config.Prefix + "format"
	ours := fmt.Sprintf("headgate format=%d tags=%d", formatVersion, l.config.Tags)
	theirs, err := l.probe.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		var life time.Duration
		if l.config.Now != nil {
			life = time.Hour
		}
		if err := l.probe.SetNX(ctx, key, ours, life).Err(); err != nil {
			return nil, fmt.Errorf("redis: write %s: %w", key, err)
		}
		theirs, err = l.probe.Get(ctx, key).Result()
	}
	switch {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		theirs = "a value of another type"
	case err != nil:
		return nil, fmt.Errorf("redis: read %s: %w", key, err)
	}
	if theirs != ours {
		return fmt.Errorf("redis: the keys below %q were made with other settings or by another version: "+
			"%s is %.80q, and here it is %q; use another prefix, or delete them all while no node runs",
			l.config.Prefix, key, theirs, ours), nil
	}
	return nil, nil
}

// readPolicy warns when Redis may forget counters. It may not be allowed to ask.
func (l *Limiter) readPolicy(ctx context.Context) {
	found, err := l.probe.ConfigGet(ctx, "maxmemory-policy").Result()
	policy := found["maxmemory-policy"]
	if err != nil && !isReply(err) {
		return
	}
	l.health.mu.Lock()
	changed := policy != l.health.policy
	l.health.policy = policy
	l.health.mu.Unlock()
	if changed && policy != "" && policy != "noeviction" {
		l.log.Warn("redis may evict counters when its memory is full, and quota is then handed out again: "+
			"set maxmemory-policy to noeviction", "maxmemory-policy", policy)
	}
}

// readMemory reads how much memory the server uses and may use. It may not be allowed
// to ask. On a cluster it is one of the servers.
func (l *Limiter) readMemory(ctx context.Context) {
	info, err := l.probe.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	used, _ := strconv.ParseInt(infoField(info, "used_memory"), 10, 64)
	most, _ := strconv.ParseInt(infoField(info, "maxmemory"), 10, 64)
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	l.health.usedMemory, l.health.maxMemory = used, most
}

// DeleteAll deletes every key below the prefix. It is for simulations and
// tests, and refuses where Config.Now is nil.
func (l *Limiter) DeleteAll(ctx context.Context) error {
	if l.config.Now == nil {
		return errors.New("redis: the keys of real traffic are not deleted")
	}
	cluster, many := l.client.(*redis.ClusterClient)
	if !many {
		return l.deleteOn(ctx, l.client)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return l.deleteOn(ctx, c) })
}

func (l *Limiter) deleteOn(ctx context.Context, c redis.Cmdable) error {
	pattern := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(l.config.Prefix) + "*"
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, pattern, 500).Result()
		if err != nil {
			return fmt.Errorf("redis: delete all: %w", err)
		}
		for _, key := range keys {
			if err := c.Del(ctx, key).Err(); err != nil {
				return fmt.Errorf("redis: delete all: %w", err)
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// infoField is a field of what INFO says.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// older compares the first two numbers of versions; what cannot be read is not older.
func older(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range 2 {
		if i >= len(a) {
			return false
		}
		have, err1 := strconv.Atoi(a[i])
		want, err2 := strconv.Atoi(b[i])
		if err1 != nil || err2 != nil || have != want {
			return err1 == nil && err2 == nil && have < want
		}
	}
	return false
}

// A tally counts what should not happen, and tells it now and then.
type tally struct{ n, told atomic.Int64 }

func (t *tally) note(n int, log *slog.Logger, message string) {
	total, now, told := t.n.Add(int64(n)), time.Now().UnixMilli(), t.told.Load()
	if now-told >= tellEvery.Milliseconds() && t.told.CompareAndSwap(told, now) {
		log.Warn("redis: "+message, "so far", total)
	}
}
