package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/simulation"
)

// simulateCommand is headgate simulate. It plays scenarios on a simulated clock.
type simulateCommand struct {
	Format string `name:"output" short:"o" default:"json" enum:"table,json,yaml" setting:"false" help:"Format of the output: json is one line for each scenario, yaml is one document; table is one line for each step."`
	Redis  string `placeholder:"URL" setting:"false" help:"Play on this Redis, with a random key prefix; delete the keys at the end."`
}

// Help returns the text that --help shows after the flags.
func (simulateCommand) Help() string {
	return `Three requests on a limit of two a minute: echo '` + simulateExample + `' | headgate simulate. ` +
		"The page docs/simulate.md describes the members of scenarios and answers."
}

// simulateExample is the scenario that --help shows.
const simulateExample = `{"limits": [{"algorithm": "fixed_window", "quota": 2, "window": "1m"}], "steps": [{"at_ms": 0, "repeat": 3}]}`

func (s simulateCommand) Run(ctx context.Context, p program, t cli.Terminal) error {
	return simulation.Run(ctx, p.stdin, cli.Output{Format: s.Format}.Lines(t, stepRows), simulation.Config{NewLimiter: s.newLimiter(ctx)})
}

// stepRows returns the result of a scenario as text for people, with one line for each step.
func stepRows(document json.RawMessage) (string, error) {
	var answer struct {
		ID    string
		Error *struct{ Field, Message string }
		Steps []struct {
			At           int64 `json:"at_ms"`
			Allowed      bool
			AllowedCount int64 `json:"allowed_count"`
			Granted      int64
			OverCount    int64  `json:"over_count"`
			RetryAfter   *int64 `json:"retry_after_ms"`
		}
	}
	if err := json.Unmarshal(document, &answer); err != nil {
		return "", err
	}
	name := cmp.Or(answer.ID, "-")
	if answer.Error != nil {
		return fmt.Sprintf("%q  error  %s", name, strings.TrimSpace(answer.Error.Field+" "+answer.Error.Message)), nil
	}
	lines := make([]string, len(answer.Steps))
	for i, step := range answer.Steps {
		last := "last one allowed"
		switch {
		case step.Allowed:
		case step.RetryAfter == nil:
			last = "last one denied, and waiting does not help"
		default:
			last = fmt.Sprintf("last one denied for %d ms", *step.RetryAfter)
		}
		if step.OverCount > 0 {
			last = fmt.Sprintf("%d over the limit, %s", step.OverCount, last)
		}
		lines[i] = fmt.Sprintf("%q  %d ms  %d allowed  %d granted  %s", name, step.At, step.AllowedCount, step.Granted, last)
	}
	return strings.Join(lines, "\n"), nil
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

// simulateTimeout is the maximum time of one Redis call in a simulation. It is long, so that the
// result does not depend on how busy the machine is.
const simulateTimeout = 30 * time.Second

// inProcessLimiter returns a limiter in this process that uses the clock now. POST /v1/simulate
// uses it too.
func inProcessLimiter(now func() int64) (enforcement.Limiter, func(), error) {
	return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
}
