package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

// redirectPause is the time before a call is sent again, if its slot is moving or if this node
// does not know its server yet.
const redirectPause = 3 * time.Millisecond

// nonLocal is a part of an error message. A script gets this error if it accesses a key on
// another server, because the slot of the key is moving.
const nonLocal = "access a non local key"

// movesSlot reports whether an error reply says that the slot is moving or has moved to another
// server.
func movesSlot(err error) bool {
	switch errorCode(err.Error()) {
	case "MOVED", "ASK", "TRYAGAIN":
		return true
	}
	return strings.Contains(err.Error(), nonLocal)
}

// A cluster has the servers of a Redis Cluster. Each server has its own circuit breaker: if a
// server does not answer, only the checks of the homes on it fail.
type cluster struct {
	calls, probes *redis.ClusterClient
	opened        *atomic.Int64 // number of times that a breaker opened
	log           *slog.Logger

	servers sync.Map // address -> *server
	mu      sync.Mutex
	masters []string // addresses of the masters, sorted; set by look
}

// A server is one server of a cluster with its circuit breaker. The breaker opens in three
// cases: a call and a probe are not answered, breakAfter calls in a row are not answered, or a
// probe cannot connect. It closes when a probe is answered.
type server struct {
	address      string
	calls, probe atomic.Pointer[redis.Client]
	open         atomic.Bool
	failures     atomic.Int32 // unanswered calls and probes since the last answer
	while        atomic.Pointer[context.Context]

	mu    sync.Mutex
	end   context.CancelFunc // ends while
	since time.Time          // when open last changed
	err   error              // why open is set
}

// A route is the server to which a redirected call is sent. The zero route stands for the
// server that has the home of the call.
type route struct {
	server *server
	asking bool // the slot is moving to the server
}

func newCluster(calls, probes *redis.ClusterClient, opened *atomic.Int64, log *slog.Logger) *cluster {
	cl := &cluster{calls: calls, probes: probes, opened: opened, log: log}
	calls.OnNewNode(func(c *redis.Client) { cl.server(c.Options().Addr).calls.Store(c) })
	probes.OnNewNode(func(c *redis.Client) { cl.server(c.Options().Addr).probe.Store(c) })
	return cl
}

// server returns the server with an address. It creates the server if it is not known.
func (cl *cluster) server(address string) *server {
	if s, ok := cl.servers.Load(address); ok {
		return s.(*server)
	}
	s := &server{address: address, since: time.Now()}
	s.renew()
	known, _ := cl.servers.LoadOrStore(address, s)
	return known.(*server)
}

// of returns the server that has a home, and the client for calls to this server.
func (cl *cluster) of(ctx context.Context, home string) (*server, *redis.Client, error) {
	client, err := cl.calls.MasterForKey(ctx, "{"+home+"}")
	if err != nil {
		return nil, nil, err
	}
	return cl.server(client.Options().Addr), client, nil
}

// target returns the server to which a call must be sent, and the client for it. If the breaker
// of the server is open, target returns an error and opens no connection.
func (l *Limiter) target(c *call) (s *server, client *redis.Client, err error) {
	if s = c.route.server; s != nil {
		client = s.calls.Load()
	} else if s, client, err = l.cluster.of(l.health.whileClosed(), c.home()); err != nil {
		return nil, nil, fmt.Errorf("redis: %w: find the server of a slot: %w", enforcement.ErrNotReached, err)
	}
	return s, client, l.mayCall(s)
}

// mayCall returns the reason why no call to a server may be made, or nil.
func (l *Limiter) mayCall(s *server) error {
	if !s.open.Load() || !l.health.isRunning() && l.cluster.probe(context.Background(), s) == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("redis: %w: %s: %w", enforcement.ErrNotReached, s.address, cmp.Or(s.err, errSilent))
}

// clusterProcess sends the command of a call to a server of the cluster.
func (l *Limiter) clusterProcess(c *call, whole bool) (*redis.StringCmd, error) {
	s, client, err := l.target(c)
	if err != nil {
		return nil, err
	}
	ctx := *s.while.Load()
	cmd := redis.NewStringCmd(ctx, c.arguments(whole)...)
	if c.route.asking {
		pipe := client.Pipeline()
		_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
		_ = pipe.Process(ctx, cmd)
		if _, err = pipe.Exec(ctx); cmd.Err() != nil {
			err = cmd.Err()
		}
	} else {
		err = client.Process(ctx, cmd)
	}
	c.asked = s
	switch {
	case err == nil || isReply(err):
		s.failures.Store(0)
	case errors.Is(err, redis.ErrClosed): // the server left the cluster
		s.calls.CompareAndSwap(client, nil)
		l.cluster.calls.ReloadState(ctx)
	case c.argument.sent:
		if s.failures.Add(1) >= breakAfter {
			l.cluster.trip(s, err)
		}
		if !l.health.suspect() {
			_ = l.cluster.probe(context.Background(), s) // Run is not running, so nothing else sends a probe
		}
	}
	return cmd, err
}

// redirected reports whether a call that failed with err must be sent again because its slot
// moves or has moved. In this case, nothing was charged. redirected sets the route of the call.
// If no server can decide the call yet, it also waits for redirectPause.
func (l *Limiter) redirected(c *call, err error) bool {
	c.route = route{}
	if l.cluster == nil || !isReply(err) {
		return false
	}
	fields := strings.Fields(err.Error())
	switch code := fields[0]; {
	case len(fields) == 3 && (code == "MOVED" || code == "ASK"):
		if code == "MOVED" {
			l.cluster.calls.ReloadState(context.Background())
		}
		if s := l.cluster.named(fields[2], c.asked); s != nil {
			c.route = route{server: s, asking: code == "ASK"}
			return true
		}
	case code == "TRYAGAIN":
	case strings.Contains(err.Error(), nonLocal) && c.script != &l.scripts.take:
		// The slot is moving, and the script accessed a key that is on the other server. It has
		// written nothing, because these scripts read their keys before they write.
	default:
		return false
	}
	time.Sleep(redirectPause)
	return true
}

// named returns the server whose address is in a redirection. If this node has no client for
// the server, it returns nil. If the address has no host, it uses the host of the server that
// replied.
func (cl *cluster) named(address string, from *server) *server {
	if strings.HasPrefix(address, ":") && from != nil {
		host, _, _ := net.SplitHostPort(from.address)
		address = net.JoinHostPort(host, address[1:])
	}
	if s, ok := cl.servers.Load(address); ok && s.(*server).calls.Load() != nil {
		return s.(*server)
	}
	return nil
}

// renew creates the context for calls that start from now on.
func (s *server) renew() {
	ctx, cancel := context.WithCancel(context.Background())
	s.while.Store(&ctx)
	s.end = cancel
}

func (cl *cluster) trip(s *server, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open.CompareAndSwap(false, true) {
		return
	}
	cl.opened.Add(1)
	s.err, s.since = err, time.Now()
	s.end()
	cl.log.Warn("a server of the redis cluster does not answer; making no calls to it until a probe is answered",
		"server", s.address, "error", err)
}

// answered records that a probe was answered, and closes the breaker.
func (cl *cluster) answered(s *server) {
	s.failures.Store(0)
	if !s.open.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew()
	s.err, s.since = nil, time.Now()
	s.open.Store(false)
	cl.log.Info("the server of the redis cluster answers again", "server", s.address)
}

// probe reads the time of a server on a connection for probes. If the server closed this
// connection, probe tries a new one, because a restarted server answers only there.
func (cl *cluster) probe(ctx context.Context, s *server) error {
	client := cmp.Or(s.probe.Load(), s.calls.Load())
	if client == nil {
		return nil
	}
	err := client.Time(ctx).Err()
	if err != nil && !isReply(err) && !isTimeout(err) {
		err = client.Time(ctx).Err()
	}
	switch {
	case err == nil || isReply(err):
		cl.answered(s)
		return nil
	case ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
	case s.failures.Add(1) > 1 || !isTimeout(err):
		cl.trip(s, err)
	}
	return err
}

// look probes all masters. If reload is true, it first reads from the cluster which servers are
// masters. With this, the node notices a failover or a moved slot even if there are no checks.
func (cl *cluster) look(ctx context.Context, reload bool) {
	if !reload {
		var probes sync.WaitGroup
		for _, address := range cl.lastMasters() {
			probes.Go(func() { _ = cl.probe(ctx, cl.server(address)) })
		}
		probes.Wait()
		return
	}
	var mu sync.Mutex
	var masters []string
	err := cl.probes.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		s := cl.server(client.Options().Addr)
		mu.Lock()
		masters = append(masters, s.address)
		mu.Unlock()
		_ = cl.probe(ctx, s)
		return nil
	})
	if err != nil || ctx.Err() != nil {
		return // no server replied with the slots, so the known masters stay
	}
	slices.Sort(masters)
	masters = slices.Compact(masters)
	cl.mu.Lock()
	changed := !slices.Equal(cl.masters, masters)
	cl.masters = masters
	cl.mu.Unlock()
	if changed || cl.anyOpen() {
		cl.calls.ReloadState(ctx)
	}
}

func (cl *cluster) lastMasters() []string {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.masters
}

// anyOpen reports whether the breaker of a master is open.
func (cl *cluster) anyOpen() bool {
	return slices.ContainsFunc(cl.lastMasters(), func(address string) bool { return cl.server(address).open.Load() })
}

// describe sets the fields of the status that summarize the servers of a cluster.
func (cl *cluster) describe(status *Status) {
	masters, away := cl.lastMasters(), 0
	for _, address := range masters {
		s := cl.server(address)
		s.mu.Lock()
		if s.since.After(status.Since) && (s.err != nil || status.Err == nil) {
			status.Since = s.since
		}
		if s.err != nil {
			away++
			status.Err = fmt.Errorf("%s: %w", s.address, s.err)
		}
		s.mu.Unlock()
	}
	status.Servers, status.ServersAway = len(masters), away
	if away > 0 {
		status.Reachable = false
		status.Err = fmt.Errorf("redis: %d of %d servers of the cluster do not answer: %w", away, len(masters), status.Err)
	}
}
