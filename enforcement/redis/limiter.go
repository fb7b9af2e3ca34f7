package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

// A Limiter keeps its counters in Redis. It is safe for use by many goroutines.
type Limiter struct {
	config Config
	client redis.UniversalClient
	take   script
	clocks clocks
	health health
	log    *slog.Logger
}

var _ enforcement.Limiter = (*Limiter)(nil)

// init keeps the client from writing each failed connection to standard error:
// this package says once that Redis is away, by its Logger and Status. It is
// done here because the client reads the setting without a lock.
func init() { redis.SetLogger(quiet{}) }

type quiet struct{}

// Printf says nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// New makes a Limiter and tries to reach Redis. It fails when the configuration
// is wrong, or when Redis answers and cannot serve: it is older than 6.2, or
// holds keys of another format. When Redis does not answer, the Limiter is
// given all the same, answers Failed, and looks again while [Limiter.Run] runs.
func New(ctx context.Context, config Config) (*Limiter, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	options, err := config.options()
	if err != nil {
		return nil, err
	}
	l := &Limiter{config: config, client: redis.NewUniversalClient(options), take: newScript(takeText), log: config.Logger}
	l.clocks.byHome = options.IsClusterMode
	l.health.start(time.Now())
	if err := l.verify(ctx); err != nil {
		if l.health.refused() != nil {
			_ = l.client.Close()
			return nil, err
		}
		l.log.Warn("redis cannot be used yet", "error", err)
	}
	return l, nil
}

// Close ends the connections. Calls under way end as they do when Redis goes away.
func (l *Limiter) Close() error { return l.client.Close() }

// takeWorkers is how many homes of one batch are asked at once.
const takeWorkers = 8

// Take decides requests as [enforcement.Limiter] says, within Config.Timeout. A
// cancellation of ctx without a deadline is seen before each call, not within one.
func (l *Limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if len(requests) == 0 {
		return
	}
	limit := bounded{Context: ctx, deadline: time.Now().Add(l.config.Timeout)}
	if d, ok := ctx.Deadline(); ok && d.Before(limit.deadline) {
		// The engine's time-out is ours, counted from a moment earlier.
		limit.short = limit.deadline.Sub(d) > l.config.Timeout/2
		limit.deadline = d
	}
	if err := l.admit(&limit); err != nil {
		for i := range outcomes {
			fail(&outcomes[i], enforcement.Failed, err)
		}
		return
	}
	if oneHome(requests) {
		l.takeHome(&limit, requests[0].Home, nil, requests, outcomes)
		return
	}
	l.takeHomes(&limit, requests, outcomes)
}

// admit says why no call may be made now.
func (l *Limiter) admit(limit *bounded) error {
	if err := limit.Err(); err != nil {
		return fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, err)
	}
	if l.health.closed.Load() || l.tryAgain(limit) {
		return nil
	}
	return fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, l.health.lastError())
}

func oneHome(requests []enforcement.Request) bool {
	for i := range requests {
		if requests[i].Home != requests[0].Home {
			return false
		}
	}
	return true
}

// takeHomes asks several homes at once, and each home in order.
func (l *Limiter) takeHomes(limit *bounded, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	places := map[string]int{}
	var homes []string
	var numbers [][]int
	for i := range requests {
		home := requests[i].Home
		at, known := places[home]
		if !known {
			at = len(homes)
			places[home] = at
			homes, numbers = append(homes, home), append(numbers, nil)
		}
		numbers[at] = append(numbers[at], i)
	}
	var next atomic.Int32
	work := func() {
		for {
			at := int(next.Add(1)) - 1
			if at >= len(homes) {
				return
			}
			l.takeHome(limit, homes[at], numbers[at], requests, outcomes)
		}
	}
	var workers sync.WaitGroup
	for range min(len(homes), takeWorkers) - 1 {
		workers.Go(work)
	}
	work()
	workers.Wait()
}

// takeHome decides the requests of one home: those numbered, or all when
// numbers is nil. Once a call was not decided, the rest is not asked: there is
// hardly time, and their order would not hold.
func (l *Limiter) takeHome(limit *bounded, home string, numbers []int, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	c := newCall(home)
	defer c.free()
	count := len(numbers)
	if numbers == nil {
		count = len(requests)
	}
	var broken error
	for n := range count {
		i := n
		if numbers != nil {
			i = numbers[n]
		}
		if err := valid(&requests[i]); err != nil {
			fail(&outcomes[i], enforcement.Failed, err)
			continue
		}
		if !c.takes(&requests[i]) {
			broken = l.finish(limit, c, requests, outcomes, broken)
		}
		c.add(i, &requests[i])
	}
	if len(c.requests) > 0 {
		_ = l.finish(limit, c, requests, outcomes, broken)
	}
}

// finish makes the call, or fails it after one that broke, and empties it.
func (l *Limiter) finish(limit *bounded, c *call, requests []enforcement.Request, outcomes []enforcement.Outcome, broken error) error {
	if broken != nil {
		c.fail(enforcement.Failed, fmt.Errorf("redis: %w: an earlier call of the batch: %w", enforcement.ErrNotReached, broken), outcomes)
	} else {
		broken = l.do(limit, c, requests, outcomes)
	}
	c.clear()
	return broken
}

// do makes one call and fills its outcomes. The error is theirs, if they are
// not decided.
func (l *Limiter) do(limit *bounded, c *call, requests []enforcement.Request, outcomes []enforcement.Outcome) error {
	passed, now := l.config.Now != nil, int64(0)
	if passed {
		now = l.config.Now()
	}
	c.encode(l.config.Prefix, passed, now)
	answer, err := l.send(limit, c)
	if err == nil && !answer.done { // done is explicit: nothing was; the clock is known better now
		c.work = c.work[:0]
		answer, err = l.send(limit, c)
	}
	switch {
	case err != nil:
		verdict, err := classify(err, c.argument.sent)
		c.fail(verdict, err, outcomes)
		return err
	case !answer.done:
		err := fmt.Errorf("redis: the call came too late, at %d by the server's clock", answer.clock)
		c.fail(enforcement.Fenced, err, outcomes)
		return err
	}
	if !passed {
		now = answer.clock
	}
	mismatches := c.fill(&answer, now, outcomes, requests)
	if mismatches > 0 {
		l.health.mismatches.note(mismatches, l.log, "the script and the reference decided differently")
	}
	if answer.unreadable > 0 {
		l.health.unreadable.note(answer.unreadable, l.log, "counters could not be read and count as new")
	}
	return nil
}

// send runs the script once, with its text when the server does not know its hash.
func (l *Limiter) send(limit *bounded, c *call) (reply, error) {
	b, err := l.run(limit, c, false)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// With the text there is no moment between loading and running in which
		// another SCRIPT FLUSH could fall.
		l.health.loads.Add(1)
		b, err = l.run(limit, c, true)
	}
	if err != nil {
		return reply{}, err
	}
	return c.readReply(b)
}

// run is one round trip.
func (l *Limiter) run(limit *bounded, c *call, whole bool) ([]byte, error) {
	started := time.Now()
	left := limit.deadline.Sub(started)
	if left <= 0 || limit.Err() != nil {
		c.argument.sent = false
		return nil, context.DeadlineExceeded
	}
	c.setDeadline(l.clocks.deadline(c.home, started, left))
	cmd := redis.NewStringCmd(limit, c.arguments(&l.take, whole)...)
	err := l.client.Process(limit, cmd)
	if err != nil {
		if !isReply(err) && limit.counts() {
			l.health.failed(err, l.log)
		}
		return nil, err
	}
	b, err := cmd.Bytes()
	if err == nil && len(b) >= 9 {
		l.clocks.learn(c.home, started, int64At(b, 1))
	}
	l.answered(started)
	return b, err
}

// bounded is the caller's context with a deadline of ours; it needs no timer,
// since the client takes the deadline to the connection.
type bounded struct {
	context.Context
	deadline time.Time
	short    bool // the deadline is the caller's, and much earlier than ours
}

// Deadline is when the call must have ended.
func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// counts tells whether a failure speaks about Redis: not when the caller was in
// a hurry or has left.
func (b *bounded) counts() bool { return !b.short && !errors.Is(b.Err(), context.Canceled) }
