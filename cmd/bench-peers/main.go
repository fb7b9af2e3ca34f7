package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/servertest/process"
)

// options holds the command-line options of a run.
type options struct {
	rounds  int
	seconds float64 // seconds of load on each service in each round
	groups  []string
	write   bool
	docs    string // folder of the pages
}

// allGroups contains the groups of benchmarks that run by default, in this order. The group ways is
// not one of them, because it needs gateways. It runs only if an option names it.
var allGroups = []string{"http", "rate", "batch", "redis", "memory", "grpc", "overload"}

// groupWays is the group of make bench-ways.
const groupWays = "ways"

func main() {
	if len(os.Args) > 2 && (os.Args[1] == "serve" || os.Args[1] == "send") {
		child := serve
		if os.Args[1] == "send" {
			child = send
		}
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	var only string
	flag.IntVar(&o.rounds, "rounds", 5, "rounds that count, after one that does not")
	flag.Float64Var(&o.seconds, "seconds", 1.5, "seconds of load for each service in each round; libraries get a fifth")
	flag.StringVar(&only, "only", "", "groups by comma: "+strings.Join(allGroups, ", ")+"; default: these; or "+groupWays)
	flag.BoolVar(&o.write, "write", true, "write the parts of docs/performance.md and docs/gateways.md whose groups all run")
	flag.Parse()
	o.docs, o.groups = "docs", allGroups
	if only != "" {
		o.groups = strings.Split(only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called before, so Exit skips no cleanup
	}
}

func (o *options) has(group string) bool { return slices.Contains(o.groups, group) }

func (o *options) check() error {
	for _, group := range o.groups {
		if group != groupWays && !slices.Contains(allGroups, group) {
			return fmt.Errorf("-only: there is no group %q: the groups are %s and %s", group, strings.Join(allGroups, ", "), groupWays)
		}
	}
	if o.rounds < 1 || o.seconds < 0.05 || o.seconds > 60 {
		return errors.New("-rounds must be at least 1, and -seconds from 0.05 to 60")
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return errors.New("processor times are read from /proc: run it on Linux")
	}
	module, err := os.ReadFile("go.mod")
	if err != nil || !strings.HasPrefix(string(module), "module github.com/headgate/headgate\n") {
		return errors.New("run it from the root of the repository: make bench-peers")
	}
	return nil
}

// A bench contains the state of one run of the command.
type bench struct {
	options
	folder   string // temporary folder; removed at the end
	redis    *redisServer
	children []*child
	ended    float64 // processor time in seconds of the child processes that have ended
	results  results
}

func run(ctx context.Context, o options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if err := process.Provide(ctx, os.Stderr, "redis-server"); err != nil {
		return err
	}
	b := &bench{options: o}
	removeLeft()
	if b.folder, err = os.MkdirTemp("", fmt.Sprintf("%s%d-", folderPrefix, os.Getpid())); err != nil {
		return err
	}
	defer os.RemoveAll(b.folder)
	defer b.stop()
	if b.redis, err = startRedis(ctx); err != nil {
		return err
	}
	b.results.machine = describe(ctx, b.redis)
	if slices.ContainsFunc([]string{"http", "rate", "batch", "grpc", "overload", groupWays}, o.has) {
		if err := b.services(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	use := b.use()
	for _, group := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"http", b.measureHTTP},
		{"rate", b.measureRate},
		{"batch", b.measureBatch},
		{"redis", b.measureRedis},
		{"memory", b.measureMemory},
		{"grpc", b.measureGRPC},
		{"overload", b.measureOverload},
		{groupWays, b.measureWays},
	} {
		if !o.has(group.name) {
			continue
		}
		groupErr := group.run(ctx)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if groupErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", group.name, groupErr))
		}
	}
	b.results.took, b.results.others = time.Since(began), b.use().others(use)
	return errors.Join(err, b.report(err == nil))
}

// folderPrefix is the beginning of the names of temporary folders. The process ID follows it in
// the name.
const folderPrefix = "headgate-bench-"

// removeLeft removes temporary folders of earlier runs that were killed before they could remove
// them.
func removeLeft() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, folder := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), folderPrefix), "-")
		if _, err := os.Stat(filepath.Join("/proc", pid)); errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(folder)
		}
	}
}

// report prints each part of the pages for which the run has measured at least one group. If
// complete is true and -write is set, it also writes parts to their files: those parts whose groups
// were all measured.
func (b *bench) report(complete bool) (err error) {
	for i := range parts {
		p := &parts[i]
		if !slices.ContainsFunc(p.groups, b.has) {
			continue
		}
		text := b.results.markdown(&b.options, p)
		fmt.Println(text)
		if !b.write || !complete || slices.ContainsFunc(p.groups, func(group string) bool { return !b.has(group) }) {
			progress("%s keeps its part with %s: -write is off, or a group did not run to its end", p.page, strings.Join(p.groups, ", "))
			continue
		}
		err = errors.Join(err, replaceResult(filepath.Join(b.docs, p.page), p.beginMark, text))
	}
	return err
}

// stop ends all processes that this run has started.
func (b *bench) stop() {
	for _, c := range slices.Backward(b.children) {
		c.stop()
	}
	if b.redis != nil {
		b.redis.stop()
	}
}

// progress prints a line to standard error that says what is measured now.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

// build builds a program with the go command. args are the arguments of the go command.
func build(ctx context.Context, env []string, args ...string) error {
	progress("go %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
