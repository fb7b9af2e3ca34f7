// Command with-servers starts a private Postgres and a private Redis, runs another
// command, usually go test, and stops both servers:
//
//	go run ./internal/servertest/cmd/with-servers -- go test -race ./...
//
// If HEADGATE_TEST_DATABASE_URL or HEADGATE_TEST_REDIS_URL is set, it uses that server
// instead of starting one. As root on Debian or Ubuntu, it first installs missing
// programs. Otherwise it fails before the command, with one message that names all
// missing programs. It prints what it does.
//
// The programs must be installed even if both variables are set, because tests of server
// failures start private servers.
//
// The command has both variables and an empty standard input, and receives every signal
// that with-servers receives. The exit code is that of the command.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/servertest/process"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: with-servers -- command [argument...]")
		os.Exit(2)
	}
	code, err := run(context.Background(), args, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "with-servers:", err)
	}
	os.Exit(code)
}

// run runs the command and returns its exit code. If the command could not be started, run returns
// 1 and an error.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	// The program handles signals from here on. Otherwise an interrupt during the start of the
	// servers could leave a server running.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	if err := process.Provide(ctx, stderr); err != nil {
		return 1, err
	}
	env := os.Environ()

	database, stop, err := database(ctx, stderr)
	if err != nil {
		return 1, err
	}
	defer stop()
	redis, stop, err := redis(ctx, stderr)
	if err != nil {
		return 1, err
	}
	defer stop()
	env = append(env, process.DatabaseVariable+"="+database, process.RedisVariable+"="+redis)

	select {
	case s := <-signals:
		return 1, fmt.Errorf("%s before the command started", s)
	default:
	}
	return command(args, env, stdout, stderr, signals)
}

func database(ctx context.Context, log io.Writer) (address string, stop func(), err error) {
	if given := os.Getenv(process.DatabaseVariable); given != "" {
		return given, func() {}, reachable(log, process.DatabaseVariable, given, "5432")
	}
	program, err := process.Program("postgres")
	if err != nil {
		return "", nil, err
	}
	p, err := process.StartPostgres()
	if err != nil {
		return "", nil, err
	}
	fmt.Fprintf(log, "with-servers: started %s (%s) on %s\n", program, process.Version(ctx, program), host(p.URL(), ""))
	return p.URL(), p.Close, nil
}

func redis(ctx context.Context, log io.Writer) (address string, stop func(), err error) {
	if given := os.Getenv(process.RedisVariable); given != "" {
		return given, func() {}, reachable(log, process.RedisVariable, given, "6379")
	}
	program, err := process.Program("redis-server")
	if err != nil {
		return "", nil, err
	}
	r, err := process.StartRedis()
	if err != nil {
		return "", nil, err
	}
	fmt.Fprintf(log, "with-servers: started %s (%s) on %s\n", program, process.Version(ctx, program), host(r.URL(), ""))
	return r.URL(), r.Close, nil
}

// reachable checks that a server answers at the address that an environment variable contains.
// Otherwise a wrong address would make every test fail.
func reachable(log io.Writer, variable, given, defaultPort string) error {
	address := host(given, defaultPort)
	if address == "" {
		return fmt.Errorf("%s is not a URL with a host", variable)
	}
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	_ = conn.Close()
	fmt.Fprintf(log, "with-servers: using the server on %s, named by %s\n", address, variable)
	return nil
}

// host returns the host and port in a URL, without the secrets of the URL.
func host(address, defaultPort string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// killAfter is the time between the signal that ends a command and the kill.
const killAfter = 30 * time.Second

// command runs args in a new process group. A signal from the terminal then reaches only this
// program, which forwards it once to the whole group.
func command(args, env []string, stdout, stderr io.Writer, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, stdout, stderr
	child, err := process.Launch(cmd, syscall.SIGTERM)
	if err != nil {
		return 1, err
	}
	var overdue <-chan time.Time
	for {
		select {
		case s := <-signals:
			child.SignalGroup(s.(syscall.Signal))
			if overdue == nil {
				overdue = time.After(killAfter)
			}
		case <-overdue:
			child.SignalGroup(syscall.SIGKILL)
		case <-child.Done():
			return exitCode(child.Err())
		}
	}
}

// exitCode returns the exit code of the child. If a signal ended the child, the exit code is 128
// plus the number of the signal, as in shells.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 1, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
