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
	probe   redis.UniversalClient // only for probes, so that they never wait behind checks
	scripts *scripts
	lanes   lanes
	cluster *cluster // nil for a single server and for servers with Sentinels
	denials denials
	clocks  clocks
	health  health
	durable durable
	live    live
	log     *slog.Logger
}

var _ enforcement.Limiter = (*Limiter)(nil)

// init disables the log of go-redis about failed connections, which goes to standard error.
// This package reports such a failure itself, once, with its Logger and in Status. The setting
// of go-redis is global and has no lock, so init changes it before any client exists.
func init() { redis.SetLogger(quiet{}) }

type quiet struct{}

// Printf discards the message.
func (quiet) Printf(context.Context, string, ...any) {}

// New returns a Limiter and tries to connect to Redis. It returns an error if the
// configuration is invalid. It also returns an error if Redis answers but cannot be
// used, because it is older than 6.2 or has keys of another format. If Redis does not
// answer, New still returns a Limiter. That Limiter returns Failed, and connects later
// while [Limiter.Run] runs.
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
	if calls, ok := l.client.(*redis.ClusterClient); ok && options.IsClusterMode {
		l.cluster = newCluster(calls, l.probe.(*redis.ClusterClient), &l.health.opened, l.log)
	}
	l.lanes.open(l)
	l.denials.open(config.Denials)
	l.health.start(time.Now())
	l.durable.open(config.Durable && config.Now == nil)
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

// Close closes the connections. Calls in flight fail as if Redis became unreachable.
func (l *Limiter) Close() error { return errors.Join(l.client.Close(), l.probe.Close()) }

// takeWorkers is the largest number of homes to which one Take sends calls at the same
// time, on a cluster.
const takeWorkers = 8

// Take implements [enforcement.Limiter]. It checks ctx before it begins. Before it sends a
// request, it checks whether the caller has closed the connection. If a request was sent, Take
// always waits for its result. One call to Redis may carry requests of several callers.
func (l *Limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if err := l.admit(ctx); err != nil {
		for i := range outcomes {
			fail(&outcomes[i], enforcement.Failed, err)
		}
		return
	}
	numbers := l.selectForCall(requests, outcomes)
	if numbers != nil && len(numbers) == 0 || len(requests) == 0 {
		return
	}
	if !l.clocks.byHome {
		l.lanes.one.decide(ctx, requests, outcomes, numbers)
		return
	}
	l.takeHomes(ctx, requests, outcomes, numbers)
}

// admit returns the reason why no call may be sent now, or nil if a call may be sent.
func (l *Limiter) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, err)
	}
	if l.health.closed.Load() || l.tryAgain(ctx) {
		return nil
	}
	return failedCall{fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, l.health.lastError())}
}

// selectForCall returns the indexes of the requests that Redis must decide; nil means all of
// them. It sets the outcomes of all others: invalid requests, durable requests whose counters
// are lost, and requests that are denied from the memory of denials. If Redis must decide a
// request, it must also decide all later ones, because that request may change their counters.
func (l *Limiter) selectForCall(requests []enforcement.Request, outcomes []enforcement.Outcome) (numbers []int) {
	needsRedis := false // an earlier request of this Take needs Redis
	for i := range requests {
		err := valid(&requests[i])
		lost := err == nil && l.isLost(&requests[i])
		send := err == nil && !lost && (needsRedis || !l.denyFromMemory(&requests[i], &outcomes[i]))
		needsRedis = needsRedis || send
		if !send && numbers == nil {
			numbers = make([]int, 0, len(requests)-1)
			for k := range i {
				numbers = append(numbers, k)
			}
		}
		switch {
		case err != nil:
			fail(&outcomes[i], enforcement.Failed, err)
		case lost:
			fail(&outcomes[i], enforcement.Lost, errLost)
		case send && numbers != nil:
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// denyFromMemory denies a request from the memory of denials. It returns false if Redis
// must decide the request.
func (l *Limiter) denyFromMemory(r *enforcement.Request, out *enforcement.Outcome) bool {
	if l.config.Now != nil {
		return l.denials.answer(r, l.config.Now(), out)
	}
	last, now := l.clocks.last(r.Home), time.Now()
	return last != nil && !last.suspended(now) && l.denials.answer(r, last.at(now), out)
}

// takeHomes decides requests on a cluster. It decides several homes at the same time, but the
// requests of one home in order.
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

// attempts is the largest number of times that a call is sent. A call is repeated only if the
// server did not run it: it arrived after its deadline, or no connection was available although
// probes are answered. Each reply corrects the estimate of the server's clock, so a second
// attempt arrives in time unless this process stalls again. If the slot of a call moves to
// another server of a cluster, the call is repeated for at most mostPatience times the timeout.
const attempts = 10

// exchange sends a call and returns the reply of the script. If err is nil, the script decided
// the requests. Otherwise conclude computes from err and the call whether they may have been
// charged.
func (l *Limiter) exchange(c *call) (answer reply, err error) {
	if !l.health.closed.Load() {
		c.argument.sent = false
		return reply{}, fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, l.health.lastError())
	}
	now := int64(0)
	if l.config.Now != nil {
		now = l.config.Now()
	}
	l.encode(c, now)
	began := time.Now()
	c.route = route{}
	for left := attempts; left > 0; left-- {
		answer, err = l.send(c)
		soon := time.Since(began) < mostPatience*l.config.Timeout
		switch {
		case err != nil && soon && l.redirected(c, err):
			left++
			continue
		case err != nil && soon && !c.argument.sent && !isReply(err) && !errors.Is(err, enforcement.ErrNotReached) && l.answers(c):
			continue
		case err != nil:
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
			l.live.foundFull(c)
			c.special = true
			l.encode(c, now)
		}
		if answer.lost {
			l.durable.lose(l.markerHome(c.home()))
			if c.dropDurable(); len(c.requests) == 0 {
				return reply{done: true, clock: answer.clock}, nil
			}
			l.encode(c, now)
		}
		c.work = c.work[:0]
	}
	if err != nil {
		return reply{}, err
	}
	return reply{}, fmt.Errorf("%w, at %d by the server's clock", errLate, answer.clock)
}

// encode encodes a call. If one of the requests is durable, the script checks the marker.
func (l *Limiter) encode(c *call, now int64) {
	marker := ""
	if c.durable && l.durable.on {
		marker = l.durableKey(l.markerHome(c.home()), markerKey)
	}
	c.encode(l.scripts, l.config.Prefix, marker, l.config.Now != nil, now)
}

// errLate is the error of a call that arrived after its deadline. The server did nothing.
var errLate = errors.New("redis: the call came too late")

// conclude sets the outcomes of a call. It takes them from the reply, or from the error if the
// call failed.
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
		c.recordExpiries()
	}
	n := c.fill(answer, answer.clock)
	if counted {
		l.live.note(c, answer.clock)
	}
	for i := range c.requests {
		r, o := c.requests[i].request, c.requests[i].outcome
		if decided := o.Verdict == enforcement.Granted || o.Verdict == enforcement.Refused; decided && !o.Replayed {
			l.denials.note(r, o)
		}
	}
	if n > 0 {
		l.health.mismatches.note(n, l.log, "the script and the Go reference functions decided differently")
	}
	if answer.unreadable > 0 {
		l.health.unreadable.note(answer.unreadable, l.log, "invalid counters in Redis; they count as unused")
	}
}

// earlier returns the error for a request that was not sent, because an earlier request of the
// same Take was not decided. err is the error of that request.
func earlier(err error) error {
	return fmt.Errorf("redis: %w: an earlier call of the batch: %w", enforcement.ErrNotReached, err)
}

// send runs the script once: by its hash, or with its text if the server does not know
// the hash.
func (l *Limiter) send(c *call) (reply, error) {
	b, err := l.run(c, false)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// EVAL sends the text and runs it in one step. Between SCRIPT LOAD and EVALSHA,
		// another SCRIPT FLUSH could remove the script again.
		l.health.loads.Add(1)
		b, err = l.run(c, true)
	}
	if err != nil {
		return reply{}, err
	}
	return c.readReply(b)
}

// answers is used for a call that was not sent. It probes the server of the call and reports
// whether the server answers.
func (l *Limiter) answers(c *call) bool {
	if l.cluster != nil {
		return c.asked != nil && l.cluster.probe(context.Background(), c.asked) == nil
	}
	return l.probeOnce(context.Background()) == nil
}

// process sends the command of a call.
func (l *Limiter) process(c *call, whole bool) (*redis.StringCmd, error) {
	if l.cluster != nil {
		return l.clusterProcess(c, whole)
	}
	ctx := l.health.whileClosed()
	cmd := redis.NewStringCmd(ctx, c.arguments(whole)...)
	err := l.client.Process(ctx, cmd)
	if err != nil && c.argument.sent && !isReply(err) {
		l.unanswered(err)
	}
	return cmd, err
}

// run makes one round trip to Redis. The connection bounds the time until the server
// answers. The wait for a free connection ends when the breaker opens.
func (l *Limiter) run(c *call, whole bool) ([]byte, error) {
	home := c.home()
	started := time.Now()
	c.setDeadline(l.clocks.deadline(home, started, l.config.Timeout))
	cmd, err := l.process(c, whole)
	if err != nil {
		if isReply(err) {
			l.refusedBy(err.Error())
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
