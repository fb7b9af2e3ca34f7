// Command headgate is a service that decides whether API requests are within their quotas. It
// contains the server with its dashboard, and commands for administration.
//
// program.run parses the command line. serveCommand.wire creates the parts of a node. The
// end-to-end tests call run as main does, with port 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	_ "time/tzdata" // tenants have time zones, and container images lack the zone files

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/logging"
)

// version is the version of the program. The linker sets it.
var version = "dev"

// A program holds the environment and the standard streams of the process. Tests replace them.
type program struct {
	getenv         func(string) string
	environ        func() []string // returns all variables as NAME=value; if it is nil, misspelled variables are not reported
	stdin          io.Reader
	stdout, stderr io.Writer
	logClock       logging.Clock // the clock of a node's log; only tests set it
}

// commands defines the subcommands of the command line.
type commands struct {
	Serve       serveCommand       `cmd:"" default:"withargs" help:"Serve the API (the default command)."`
	Demo        demoCommand        `cmd:"" help:"Serve sample plans and tenants, a week of history and live traffic from a separate database."`
	Migrate     migrateCommand     `cmd:"" help:"Bring the database's schema up to date, or look at it."`
	Key         keyCommand         `cmd:"" help:"Create, list and revoke operator keys."`
	User        userCommand        `cmd:"" help:"List, create, invite and disable people who sign in."`
	Secrets     secretsCommand     `cmd:"" help:"Encrypt secrets in the database with another key."`
	Backup      backupCommand      `cmd:"" help:"Write a SQLite database to a new file, while a node serves it: headgate backup /backup/headgate.db"`
	Audit       auditCommand       `cmd:"" help:"Verify the audit log."`
	Simulate    simulateCommand    `cmd:"" help:"Run scenarios: read one JSON scenario per line from standard input, and write one JSON line for each."`
	Doctor      doctorCommand      `cmd:"" help:"Check the settings and what they name: files, database, Redis, clocks, proxies and ports. Says what to do."`
	Bench       benchCommand       `cmd:"" help:"Measure an installation: send checks, and print the rate and latency."`
	Healthcheck healthcheckCommand `cmd:"" help:"Ask a running node whether it is ready; for container health checks."`
	Completion  completionCommand  `cmd:"" help:"Print a completion script: source <(headgate completion bash)"`
	Version     versionCommand     `cmd:"" help:"Print the version."`

	cli.Commands
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // after the first signal, the default action of a second one ends the process at once
	p := program{getenv: os.Getenv, environ: os.Environ, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	err := p.run(ctx, os.Args[1:])
	stop()
	if err == nil {
		return
	}
	// A write to standard error blocks if it is a full pipe without a reader. Close waits at most
	// logTimeout for the write, so that the process ends in any case.
	last := logging.NewWriter(os.Stderr, nil)
	fmt.Fprintln(last, "headgate:", err)
	_ = last.Close(logTimeout)
	os.Exit(exitCode(err))
}

// A usageError is an error in the command line or in a setting. It ends the process with exit code
// 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// exitCode returns the exit code of the process for an error.
func exitCode(err error) int {
	if errors.As(err, new(usageError)) {
		return cli.ExitUsage
	}
	return cli.ExitCode(err)
}

// exitNow is the value with which run panics when kong wants to exit, for example after --help.
type exitNow int

// run parses args and runs one command. It returns when the command has ended. When ctx ends, the
// command ends.
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
	if path := configPath(args, p.getenv); path != "" {
		if p.getenv, err = withConfig(p.getenv, path, parser.Model); err != nil {
			return usageError{err}
		}
		if parser, err = p.parser(ctx); err != nil {
			return err
		}
	}
	doctor := len(args) > 0 && args[0] == "doctor" // doctor lists misspelled settings among its findings, so they must not end it
	if err := unknownSettings(parser.Model, p.environ); err != nil && !doctor {
		return usageError{err}
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		// The first word must be the name of a command. Without a default command, kong suggests
		// the closest name for a misspelled one.
		parser.Model.DefaultCmd = nil
	}
	command, err := parser.Parse(args)
	if err != nil {
		return usageError{namedError(parser.Model, err)}
	}
	return command.Run()
}

// parser returns the parser of the command line.
func (p program) parser(ctx context.Context) (*kong.Kong, error) {
	parser, err := kong.New(&commands{},
		kong.Name("headgate"),
		kong.Description("A multi-tenant quota and rate-limit service. With nothing configured it runs alone on SQLite and in-process "+
			"counters.\n\n"+
			"A flag with a name in brackets is also that environment variable; the flag wins. A secret may stand in a file named by the variable "+
			"with _FILE behind it."),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true}),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { panic(exitNow(code)) }),
		kong.Resolvers(environment(p.getenv)),
		kong.ValueFormatter(helpWithVariable),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
		kong.Bind(cli.Terminal{
			Getenv: p.getenv, Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, Interactive: isTerminal(p.stderr), Version: version,
		}),
		kong.ExplicitGroups([]kong.Group{{Key: "remote", Title: "Commands that call an installation (HEADGATE_URL, HEADGATE_TOKEN):"}}),
	)
	if err == nil {
		separateDemo(parser)
	}
	return parser, err
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// versionCommand prints the version.
type versionCommand struct{ cli.Output }

func (v versionCommand) Run(t cli.Terminal) error {
	return v.Text(t, map[string]string{"version": version}, "headgate "+version+"\n")
}
