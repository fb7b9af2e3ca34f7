package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

// A Limiter keeps its counters in Redis. It is safe for use by many goroutines.
type Limiter struct {
	config  Config
	client  redis.UniversalClient
	probe   redis.UniversalClient // for probes; its connections carry no checks
	scripts *scripts
	lanes   lanes
	denials denials
	clocks  clocks
	health  health
	live    live
	log     *slog.Logger
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
	l := &Limiter{config: config, scripts: newScripts(), log: config.Logger}
	l.client, l.probe = redis.NewUniversalClient(l.callOptions(options)), redis.NewUniversalClient(l.probeOptions(options))
	l.clocks.byHome = options.IsClusterMode
	l.lanes.open(l)
	l.denials.open(config.Denials)
	l.health.start(time.Now())
	l.live.open(config.Keys)
	if err := l.verify(ctx); err != nil {
		if l.health.refused() != nil {
			_ = l.Close()
			return nil, err
		}
		l.log.Warn("redis cannot be used yet", "error", err)
	}
	return l, nil
}

// Close ends the connections. Calls under way end as they do when Redis goes away.
func (l *Limiter) Close() error { return errors.Join(l.client.Close(), l.probe.Close()) }

// takeWorkers is how many homes of one Take are asked at once on a cluster.
const takeWorkers = 8

// Take decides requests as [enforcement.Limiter] says. It checks ctx before it
// begins, and whether the caller has left when its turn comes. A request that was
// sent is not abandoned. Requests of other callers may share its calls.
func (l *Limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if err := l.admit(ctx); err != nil {
		for i := range outcomes {
			fail(&outcomes[i], enforcement.Failed, err)
		}
		return
	}
	numbers := l.askable(requests, outcomes)
	if numbers != nil && len(numbers) == 0 || len(requests) == 0 {
		return
	}
	if !l.clocks.byHome {
		l.lanes.one.decide(ctx, requests, outcomes, numbers)
		return
	}
	l.takeHomes(ctx, requests, outcomes, numbers)
}

// admit returns why no call may be made now.
func (l *Limiter) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, err)
	}
	if l.health.closed.Load() || l.tryAgain(ctx) {
		return nil
	}
	return fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, l.health.lastError())
}

// askable sets the outcomes of the requests that Redis is not asked: those that
// cannot be asked, and those that the memory of denials answers. Behind a request
// that is asked the memory is not used: that request may change the counters. It
// returns the numbers of the others; nil means all.
func (l *Limiter) askable(requests []enforcement.Request, outcomes []enforcement.Outcome) (numbers []int) {
	begun := false // a request of this Take is asked
	for i := range requests {
		err := valid(&requests[i])
		asked := err == nil && (begun || !l.recall(&requests[i], &outcomes[i]))
		begun = begun || asked
		if !asked && numbers == nil {
			numbers = make([]int, 0, len(requests)-1)
			for k := range i {
				numbers = append(numbers, k)
			}
		}
		switch {
		case err != nil:
			fail(&outcomes[i], enforcement.Failed, err)
		case asked && numbers != nil:
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// recall answers a request from the memory of denials.
func (l *Limiter) recall(r *enforcement.Request, out *enforcement.Outcome) bool {
	if l.config.Now != nil {
		return l.denials.answer(r, l.config.Now(), out)
	}
	last, now := l.clocks.last(r.Home), time.Now()
	return last != nil && !last.suspended(now) && l.denials.answer(r, last.at(now), out)
}

// takeHomes asks several homes at once, and each home in order.
func (l *Limiter) takeHomes(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome, numbers []int) {
	if numbers == nil {
		if home := requests[0].Home; !slices.ContainsFunc(requests, func(r enforcement.Request) bool { return r.Home != home }) {
			l.lanes.of(l, home).decide(ctx, requests, outcomes, nil)
			return
		}
		for i := range requests {
			numbers = append(numbers, i)
		}
	}
	places := map[string]int{}
	var homes []string
	var parts [][]int
	for _, i := range numbers {
		home := requests[i].Home
		at, known := places[home]
		if !known {
			at = len(homes)
			places[home] = at
			homes, parts = append(homes, home), append(parts, nil)
		}
		parts[at] = append(parts[at], i)
	}
	var next atomic.Int32
	work := func() {
		for at := int(next.Add(1)) - 1; at < len(homes); at = int(next.Add(1)) - 1 {
			l.lanes.of(l, homes[at]).decide(ctx, requests, outcomes, parts[at])
		}
	}
	var workers sync.WaitGroup
	for range min(len(homes), takeWorkers) - 1 {
		workers.Go(work)
	}
	work()
	workers.Wait()
}

// attempts is how often a call is sent that the server is known not to have done:
// it arrived past its fence, or it found no connection while probes are answered.
// Each answer corrects the estimate of the server's clock, so a second attempt
// arrives in time unless this process stalled again.
const attempts = 10

// exchange sends a call and reads the answer. The answer says that the call was
// done; otherwise there is an error, and verdict says what it leaves.
func (l *Limiter) exchange(c *call) (answer reply, err error) {
	if !l.health.closed.Load() {
		c.argument.sent = false
		return reply{}, fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, l.health.lastError())
	}
	now := int64(0)
	if l.config.Now != nil {
		now = l.config.Now()
	}
	c.encode(l.scripts, l.config.Prefix, l.config.Now != nil, now)
	began := time.Now()
	for range attempts {
		answer, err = l.send(c)
		if err != nil && !c.argument.sent && !isReply(err) &&
			time.Since(began) < mostPatience*l.config.Timeout && l.probeOnce(context.Background()) == nil {
			continue
		}
		if err != nil {
			return reply{}, err
		}
		if answer.done {
			if l.config.Now == nil {
				now = answer.clock
			}
			answer.clock = now
			return answer, nil
		}
		if answer.full {
			l.live.found(c)
			c.special = true
			c.encode(l.scripts, l.config.Prefix, l.config.Now != nil, now)
		}
		c.work = c.work[:0]
	}
	if err != nil {
		return reply{}, err
	}
	return reply{}, fmt.Errorf("%w, at %d by the server's clock", errLate, answer.clock)
}

// errLate is the error of a call that the server did not do because its fence had passed.
var errLate = errors.New("redis: the call came too late")

// conclude sets the outcomes of a call from its answer, or from the error that
// it ended with.
func (l *Limiter) conclude(c *call, answer *reply, err error) {
	if err != nil {
		verdict := enforcement.Fenced
		if !errors.Is(err, errLate) {
			verdict, err = classify(err, c.argument.sent)
		}
		c.fail(verdict, err)
		return
	}
	counted := l.config.Now == nil && !l.live.off
	if counted {
		c.noteEnds()
	}
	n := c.fill(answer, answer.clock)
	if counted {
		l.live.note(c, answer.clock)
	}
	for i := range c.requests {
		l.denials.note(c.requests[i].request, c.requests[i].outcome)
	}
	if n > 0 {
		l.health.mismatches.note(n, l.log, "the script and the reference decided differently")
	}
	if answer.unreadable > 0 {
		l.health.unreadable.note(answer.unreadable, l.log, "counters could not be read and count as new")
	}
}

// earlier is the error of requests that were not sent because a call before them
// was not decided.
func earlier(err error) error {
	return fmt.Errorf("redis: %w: an earlier call of the batch: %w", enforcement.ErrNotReached, err)
}

// send runs the script once, with its text when the server does not know its hash.
func (l *Limiter) send(c *call) (reply, error) {
	b, err := l.run(c, false)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// With the text there is no moment between loading and running in which
		// another SCRIPT FLUSH could fall.
		l.health.loads.Add(1)
		b, err = l.run(c, true)
	}
	if err != nil {
		return reply{}, err
	}
	return c.readReply(b)
}

// run is one round trip. The connection bounds how long the server may take;
// waiting for a connection ends when the breaker opens.
func (l *Limiter) run(c *call, whole bool) ([]byte, error) {
	home := c.home()
	started := time.Now()
	c.setDeadline(l.clocks.deadline(home, started, l.config.Timeout))
	ctx := l.health.whileClosed()
	cmd := redis.NewStringCmd(ctx, c.arguments(whole)...)
	err := l.client.Process(ctx, cmd)
	if err != nil {
		switch {
		case isReply(err):
			l.refusedBy(err.Error())
		case c.argument.sent:
			l.unanswered(err)
		}
		return nil, err
	}
	b, err := cmd.Bytes()
	if err == nil && len(b) >= 9 {
		l.clocks.learn(home, started, int64At(b, 1))
		l.health.calls.Add(1)
	}
	l.answered(started)
	return b, err
}
