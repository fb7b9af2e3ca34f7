// Command headgate decides whether API requests pass: the server with its
// dashboard, and the commands that administer it.
//
// main parses, run wires. The end-to-end tests start run on port 0 just as main
// does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	_ "time/tzdata" // tenants have time zones, and images have no zone files

	"github.com/headgate/headgate/internal/logging"
)

// version is set by the build.
var version = "dev"

// A program is what every command is given.
type program struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// commands is the whole command line.
type commands struct {
	Serve       serveCommand       `cmd:"" default:"withargs" help:"Serve the API (the default command)."`
	Demo        demoCommand        `cmd:"" help:"Serve sample plans and tenants, a week of history and live traffic from a separate database."`
	Migrate     migrateCommand     `cmd:"" help:"Bring the database's schema up to date, or look at it."`
	Key         keyCommand         `cmd:"" help:"Create, list and revoke operator keys."`
	User        userCommand        `cmd:"" help:"List, create, invite and disable people who sign in."`
	Audit       auditCommand       `cmd:"" help:"Verify the audit log."`
	Simulate    simulateCommand    `cmd:"" help:"Play scenarios: one JSON scenario a line on standard input, one JSON line out for each."`
	Bench       benchCommand       `cmd:"" help:"Measure an installation: send checks, and print their rate and latency."`
	Healthcheck healthcheckCommand `cmd:"" help:"Ask a running node whether it is ready; for container health checks."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	p := program{getenv: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	err := p.run(ctx, os.Args[1:])
	stop()
	if err == nil {
		return
	}
	// Standard error may be a full pipe, which must not keep the process from ending.
	last := logging.NewWriter(os.Stderr, nil)
	fmt.Fprintln(last, "headgate:", err)
	_ = last.Close(logTimeout)
	if errors.As(err, new(usageError)) {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError is an error of the command line or a setting: exit code 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// exitNow unwinds kong's wish to exit after --help.
type exitNow int

// run parses args and runs one command until it ends or ctx does.
func (p program) run(ctx context.Context, args []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exitNow); !ok {
				panic(r)
			}
		}
	}()
	parser, err := p.parser(ctx)
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return usageError{namedError(parser.Model, err)}
	}
	return command.Run()
}

// parser reads command lines.
func (p program) parser(ctx context.Context) (*kong.Kong, error) {
	parser, err := kong.New(&commands{},
		kong.Name("headgate"),
		kong.Description("A multi-tenant quota and rate-limit service. With nothing configured it runs alone on SQLite and in-process "+
			"counters.\n\n"+
			"A flag with a name in brackets is also that environment variable; the flag wins. A secret may stand in a file named by the variable "+
			"with _FILE behind it."),
		kong.UsageOnError(),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { panic(exitNow(code)) }),
		kong.Resolvers(environment(p.getenv)),
		kong.ValueFormatter(helpWithVariable),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
	)
	if err == nil {
		separateDemo(parser)
	}
	return parser, err
}

// versionCommand prints the version.
type versionCommand struct{}

func (versionCommand) Run(p program) error {
	_, err := fmt.Fprintln(p.stdout, "headgate", version)
	return err
}
