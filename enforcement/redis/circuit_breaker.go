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
	breakAfter   = 5 // number of unanswered calls in a row that opens the breaker
	suspectAfter = 1 // number of slices for which a call waits before a probe is sent
	// silentAfter is the number of slices after which a probe counts as unanswered. suspectAfter and silentAfter
	// together are the timeout of a call.
	silentAfter   = 4
	probeEvery    = 200 * time.Millisecond // interval of probes while the breaker is open, shorter or longer by up to a quarter
	lookEvery     = time.Second            // interval of probes while the breaker is closed and no call is made
	policyEvery   = time.Minute
	tellEvery     = time.Minute // least time between two log lines of one kind
	minVersion    = "6.2"
	formatVersion = 1 // format of keys and values
)

// A Status is the state of Redis for readiness checks and metrics.
type Status struct {
	// Reachable is false while the breaker is open. Take then returns Failed at once, and probes check whether
	// Redis answers again. On a cluster, it is false while the breaker of any master is open. Only the requests
	// of that server then fail.
	Reachable bool
	// Servers is the number of masters of a cluster. ServersAway is the number of masters whose breaker is open.
	// Both are 0 without a cluster.
	Servers, ServersAway int
	// Since is the time at which Reachable last changed.
	Since time.Time
	// Err is the reason why Redis is not reachable, or nil.
	Err error
	// Version is the version of the server, or "" if it is not known.
	Version string
	// MaxMemoryPolicy is the server's setting maxmemory-policy, or "" if it is not known. With any other policy
	// than "noeviction", Redis may evict counters, and requests above the quota are then allowed.
	MaxMemoryPolicy string
	// Mismatches is the number of requests that the script and the Go reference
	// functions decided differently. It should stay 0.
	Mismatches int64
	// Unreadable is the number of values that were not valid counters. Such a value
	// counts as an unused counter.
	Unreadable int64
	// ScriptLoads is the number of times that this node sent the text of a script, because the server did not
	// know it.
	ScriptLoads int64
	// BreakerOpened is the number of times that the breaker opened.
	BreakerOpened int64
	// Calls is the number of script calls that Redis answered.
	Calls int64
	// Recalled is the number of requests that were denied from the memory of denials.
	Recalled int64
	// Refusal is set while Redis answers calls but denies writes. It has the error, and the time
	// of the first denied write. It is zero if Redis accepts writes.
	Refusal Refusal
	// Loss describes the last loss of data in Redis that this node detected. Losses is
	// the number of losses since this node started.
	Loss   Loss
	Losses int64
	// UsedMemory and MaxMemory are the server's memory in use and its limit, in bytes.
	// Both are 0 until they are known. MaxMemory is also 0 if there is no limit.
	UsedMemory, MaxMemory int64
	// Unrestored is the time since which durable counters are lost and not restored. It is zero if no counters
	// are lost. Restored is the number of homes whose counters any node has restored since this node started.
	Unrestored time.Time
	Restored   int64
	// Epoch identifies the data set in Redis. It changes when data is lost. It is ""
	// before the first pulse.
	Epoch string
}

// Evicts reports whether Redis evicts counters when its memory is full. It returns
// false if the policy is not known.
func (s *Status) Evicts() bool { return s.MaxMemoryPolicy != "" && s.MaxMemoryPolicy != "noeviction" }

// Status returns the last known state of Redis. It sends nothing to Redis.
func (l *Limiter) Status() Status {
	l.durable.mu.Lock()
	unrestored, restored := l.durable.since, l.durable.restored
	l.durable.mu.Unlock()
	h := &l.health
	h.mu.Lock()
	defer h.mu.Unlock()
	status := Status{
		Unrestored: unrestored, Restored: restored,
		Reachable: h.closed.Load(), Since: h.since, Err: h.err,
		Version: h.version, MaxMemoryPolicy: h.policy,
		Mismatches: h.mismatches.n.Load(), Unreadable: h.unreadable.n.Load(),
		ScriptLoads: h.loads.Load(), BreakerOpened: h.opened.Load(), Calls: h.calls.Load(), Recalled: l.denials.answered.Load(),
		Refusal: h.refusing, Loss: h.marks.loss, Losses: h.marks.count, Epoch: h.marks.epoch,
		UsedMemory: h.usedMemory, MaxMemory: h.maxMemory,
	}
	if l.cluster != nil {
		l.cluster.describe(&status)
	}
	return status
}

// health has the circuit breaker and what this node knows about Redis.
//
// Two kinds of failures count for the breaker: calls that were written to a connection and not answered within
// the timeout, and failed probes on a separate connection. Time that a request waits inside this process does
// not count.
//
// The breaker opens in four cases: a call and a concurrent probe are not answered; breakAfter calls in a row
// are not answered; a probe cannot connect; two probes in a row are not answered while no call is answered. It
// closes when verify succeeds.
//
// On a cluster, each server has its own breaker (type server). After the first connection, the breaker of
// health then stays closed.
type health struct {
	closed   atomic.Bool  // the breaker is closed, so calls are made
	failures atomic.Int32 // unanswered calls and probes since the last answer
	probing  atomic.Bool  // a probe is in flight
	silent   atomic.Bool  // the probe in flight has waited for silentAfter slices
	spoken   atomic.Int64 // when the last answered call or probe was sent, in Unix milliseconds
	asked    chan struct{}

	loads, opened, calls   atomic.Int64
	mismatches, unreadable warningCounter

	while atomic.Pointer[context.Context] // canceled when the breaker opens

	mu      sync.Mutex
	running bool // Run probes
	nextTry time.Time
	since   time.Time
	open    context.CancelFunc // ends while
	err     error              // why the breaker is open
	refusal error              // why Redis must not be used although it answers calls
	version string
	policy  string

	refusing  Refusal
	refusedAt time.Time // when Redis last denied a write
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

// renew creates the context for later calls. The caller holds h.mu.
func (h *health) renew() {
	ctx, cancel := context.WithCancel(context.Background())
	h.while.Store(&ctx)
	h.open = cancel
}

// whileClosed returns a context that is canceled when the breaker opens.
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

// unanswered records that a call was written to a connection and got no answer in time.
func (l *Limiter) unanswered(err error) {
	h := &l.health
	if h.failures.Add(1) >= breakAfter || h.silent.Load() {
		h.trip(err, l.log)
	}
	if !h.suspect() {
		_ = l.probeOnce(context.Background()) // Run is not running, so nothing else sends a probe
	}
}

// suspect asks Run to send a probe now. It returns false if Run is not running.
func (h *health) suspect() bool {
	select {
	case h.asked <- struct{}{}:
	default: // a request for a probe is already pending
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// probeIsSilent records that a command on the probe connection has waited for silentAfter slices without an
// answer. It ignores the command unless it is a probe of a single server.
func (l *Limiter) probeIsSilent() {
	h := &l.health
	if l.cluster != nil || !h.probing.Load() {
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
	log.Warn("redis does not answer; making no calls until a probe is answered", "error", err)
}

// succeeded records that Redis answered a call or a probe that was sent at the time
// sent.
func (h *health) succeeded(sent time.Time) {
	if h.failures.Load() != 0 {
		h.failures.Store(0)
	}
	h.spoken.Store(sent.UnixMilli())
}

// answered records that Redis answered a call, and reports its duration to
// Config.Observe.
func (l *Limiter) answered(sent time.Time) {
	l.health.succeeded(sent)
	l.config.Observe(time.Since(sent))
}

// tryAgain checks whether Redis answers again. It does so only if Run is not running, and for only one caller
// at a time.
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

// Run monitors Redis until ctx ends, and then returns nil. While the breaker is open, Run checks whether Redis
// answers again. While the breaker is closed, Run detects whether Redis stops answering, denies writes, or
// loses data. Once a minute, it reads whether Redis may evict counters. If Run is not running, some calls of
// Take check whether Redis answers again.
func (l *Limiter) Run(ctx context.Context) error {
	l.health.setRunning(true)
	defer l.health.setRunning(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	policyAt, pulseAt, lookAt := time.Now().Add(policyEvery), time.Now().Add(pulseEvery), time.Now()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-l.live.hurry:
			if l.health.closed.Load() {
				l.readMemory(ctx)
				l.countKeys(ctx)
			}
			continue
		case <-l.health.asked:
			asked = true
		case <-timer.C:
		}
		if !l.health.closed.Load() {
			_ = l.verify(ctx) // Status has the error
		} else if now := time.Now(); now.After(policyAt) {
			l.readPolicy(ctx)
			policyAt = now.Add(policyEvery)
		} else if l.cluster != nil {
			if reload := now.After(lookAt) || !asked && l.cluster.anyOpen(); reload || asked {
				l.cluster.look(ctx, reload)
				lookAt = now.Add(lookEvery)
			}
		} else if asked || now.UnixMilli()-l.health.spoken.Load() >= lookEvery.Milliseconds() {
			_ = l.probeOnce(ctx) // the breaker records the error
		}
		if now := time.Now(); now.After(pulseAt) && l.health.closed.Load() && l.pulse(ctx) {
			pulseAt = now.Add(pulseEvery)
			l.readMemory(ctx)
			l.countKeys(ctx)
		}
		timer.Reset(probeEvery*3/4 + rand.N(probeEvery/2))
	}
}

// probeOnce reads the time of Redis on the probe connection. If the server closed this connection, probeOnce
// tries a new one, because a restarted server answers only there.
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
		h.suspect() // the next probe decides whether the breaker opens
	}
	return err
}

func (h *health) isRunning() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

func (h *health) setRunning(running bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = running
}

// verify connects to Redis and checks that this version of Headgate can use the keys in it. If so, verify
// closes the breaker. Otherwise it records why the breaker stays open.
func (l *Limiter) verify(ctx context.Context) error {
	version, refusal, err := l.inspect(ctx)
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
	h.mu.Unlock()
	l.readMemory(ctx) // before the first call, because tenants have no bound while the memory is unknown
	h.mu.Lock()
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
	if l.cluster != nil {
		l.cluster.look(ctx, true)
	}
	l.pulse(ctx)
	l.readPolicy(ctx)
	return nil
}

// inspect checks before the first call that Redis can be used. It reads the clock and
// the version of Redis, and compares the format of the keys. refusal is the reason why
// this Redis must not be used. err is set if Redis did not answer.
func (l *Limiter) inspect(ctx context.Context) (version string, refusal, err error) {
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
	if l.cluster == nil && infoField(info, "redis_mode") == "cluster" {
		return version, errors.New("redis: the server is part of a cluster: add ?cluster=true to the URL"), nil
	}
	if refusal, err = l.checkEviction(ctx); refusal != nil || err != nil {
		return version, refusal, err
	}
	refusal, err = l.checkFormat(ctx)
	return version, refusal, err
}

// checkEviction returns an error for a Redis that may evict counters, if Config.Strict is set. It accepts a
// Redis that this node has already used; for such a Redis, Run logs a warning.
func (l *Limiter) checkEviction(ctx context.Context) (refusal, err error) {
	l.health.mu.Lock()
	known := l.health.version != ""
	l.health.mu.Unlock()
	if !l.config.Strict || known {
		return nil, nil
	}
	found, err := l.probe.ConfigGet(ctx, "maxmemory-policy").Result()
	switch policy := found["maxmemory-policy"]; {
	case err != nil && !isReply(err):
		return nil, fmt.Errorf("redis: ask for maxmemory-policy: %w", err)
	case policy == "":
		return errors.New("redis: its maxmemory-policy cannot be read: allow CONFIG GET for this user, or do not require noeviction"), nil
	case policy != "noeviction":
		return fmt.Errorf("redis: its maxmemory-policy is %s, so it may evict counters: set it to noeviction", policy), nil
	}
	return nil, nil
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

// format returns a text that identifies the format of the keys and values in Redis.
func (c *Config) format() string {
	return fmt.Sprintf("headgate format=%d tags=%d", formatVersion, c.Tags)
}

// checkFormat compares the format of keys with the format that an earlier node wrote to
// Redis. Nodes with different formats would count each request in different counters,
// without an error.
func (l *Limiter) checkFormat(ctx context.Context) (refusal, err error) {
	key := l.config.Prefix + "format"
	ours := l.config.format()
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

// readPolicy reads maxmemory-policy, and logs a warning if Redis may evict counters. It
// ignores an error reply, because the Redis user may lack the permission.
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

// readMemory reads the server's memory in use and its limit. It ignores errors, because
// the Redis user may lack the permission. On a cluster, the values are those of one
// server.
func (l *Limiter) readMemory(ctx context.Context) {
	info, err := l.probe.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	used, _ := strconv.ParseInt(infoField(info, "used_memory"), 10, 64)
	most, _ := strconv.ParseInt(infoField(info, "maxmemory"), 10, 64)
	l.live.setMemory(used, most)
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	l.health.usedMemory, l.health.maxMemory = used, most
}

// DeleteAll deletes every key with the prefix. It is only for simulations and tests: if
// Config.Now is nil, it returns an error.
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

// infoField returns the value of a field in the reply of INFO, or "" if there is no
// such field.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// older reports whether a version is lower than another one. It compares the first two
// numbers. If one is not a number, it returns false.
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

// A warningCounter counts unexpected events. It logs their number, at most once in
// tellEvery.
type warningCounter struct{ n, told atomic.Int64 }

func (t *warningCounter) note(n int, log *slog.Logger, message string) {
	total, now, told := t.n.Add(int64(n)), time.Now().UnixMilli(), t.told.Load()
	if now-told >= tellEvery.Milliseconds() && t.told.CompareAndSwap(told, now) {
		log.Warn("redis: "+message, "so far", total)
	}
}
