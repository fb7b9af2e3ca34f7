package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/simulation"
)

// simulateCommand is headgate simulate. It runs scenarios with simulated time.
type simulateCommand struct {
	Redis string `placeholder:"URL" setting:"false" help:"Play on this Redis, with a random key prefix; delete the keys at the end."`
}

// Help returns the text that --help shows after the flags.
func (simulateCommand) Help() string {
	return `Three requests on a limit of two a minute: echo '` + simulateExample + `' | headgate simulate. ` +
		"The page docs/simulate.md describes the members of scenarios and answers."
}

// simulateExample is the scenario that --help shows.
const simulateExample = `{"limits": [{"algorithm": "fixed_window", "quota": 2, "window": "1m"}], "steps": [{"at_ms": 0, "repeat": 3}]}`

func (s simulateCommand) Run(ctx context.Context, p program) error {
	return simulation.Run(ctx, p.stdin, p.stdout, simulation.Config{NewLimiter: s.newLimiter(ctx)})
}

func (s simulateCommand) newLimiter(ctx context.Context) simulation.NewLimiter {
	if s.Redis == "" {
		return inProcessLimiter
	}
	return func(now func() int64) (enforcement.Limiter, func(), error) {
		l, err := redis.New(ctx, redis.Config{
			URL: s.Redis, Prefix: "hg-sim-" + rand.Text() + ":", Timeout: simulateTimeout, Now: now, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, nil, err
		}
		return l, func() { _ = errors.Join(l.DeleteAll(context.WithoutCancel(ctx)), l.Close()) }, nil
	}
}

// simulateTimeout is the timeout of one Redis call in a simulation. It is long, so that results
// do not depend on the load of the machine.
const simulateTimeout = 30 * time.Second

// inProcessLimiter returns a limiter in memory with the given clock. POST /v1/simulate also
// uses it.
func inProcessLimiter(now func() int64) (enforcement.Limiter, func(), error) {
	return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
}
