package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

const patience = time.Minute

func main() {
	server := flag.String("server", "bin/headgate", "the headgate binary")
	scenarios := flag.String("scenarios", "scenarios.json", "the file of scenarios")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *server, *scenarios, flag.Args())
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		os.Exit(max(1, ended.ExitCode()))
	case err != nil:
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, file string, command []string) error {
	if len(command) == 0 {
		return errors.New("no command: conformance [-server FILE] -- COMMAND")
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	suite, err := read(file)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "headgate-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	node, err := start(program, folder)
	if err != nil {
		return err
	}
	defer node.stop()
	key, err := node.prepare(ctx, suite)
	if err != nil {
		return err
	}
	faults, err := serveFaults(suite)
	if err != nil {
		return err
	}
	defer faults.close()
	refused, closeRefused, err := refusing()
	if err != nil {
		return err
	}
	defer closeRefused()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "HEADGATE_URL="+node.url, "HEADGATE_TOKEN="+node.token, "HEADGATE_KEY="+key,
		"HEADGATE_FAULTS_URL="+faults.url, "HEADGATE_REFUSED_URL="+refused, "HEADGATE_SCENARIOS="+file)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.Run()
}

// A suite is the part of scenarios.json that this command uses.
type suite struct {
	Plan json.RawMessage `json:"plan"`
	// Grants are grants of the tenant, without an end. prepare adds one.
	Grants    []map[string]any `json:"grants"`
	Scenarios []scenario       `json:"scenarios"`
}

type scenario struct {
	Name   string  `json:"name"`
	Faults []fault `json:"faults"`
}

func read(file string) (suite, error) {
	var s suite
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

type node struct {
	url, token string
	cmd        *exec.Cmd
	done       chan struct{}
}

var servesAt = regexp.MustCompile(`serves (http://\S+)`)

// start starts the server on a free port, with its data in folder, and waits until it
// prints its address.
func start(program, folder string) (*node, error) {
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	n := &node{token: rand.Text() + rand.Text(), cmd: exec.Command(program, "serve", "--sample=false"), done: make(chan struct{})}
	n.cmd.Dir = folder
	n.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "HEADGATE_ADDR=127.0.0.1:0", "HEADGATE_LOG_LEVEL=warn", "HEADGATE_METRICS_PUBLIC=false",
		"HEADGATE_BOOTSTRAP_KEY=" + n.token, "HEADGATE_DATABASE_URL=sqlite://" + folder + "/headgate.db",
	}
	// Passed on to the server, because a fuzzer exceeds the default limits.
	for _, name := range []string{"HEADGATE_API_RATE", "HEADGATE_API_RATE_PER_ADDRESS"} {
		if value, set := os.LookupEnv(name); set {
			n.cmd.Env = append(n.cmd.Env, name+"="+value)
		}
	}
	n.cmd.Stderr = os.Stderr
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s (make build): %w", program, err)
	}
	found := make(chan string, 1)
	go func() {
		defer close(n.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := servesAt.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
		_ = n.cmd.Wait()
	}()
	select {
	case n.url = <-found:
		return n, nil
	case <-n.done:
		return nil, fmt.Errorf("%s ended before it was ready", program)
	case <-time.After(patience):
		n.stop()
		return nil, fmt.Errorf("%s was not ready within %s", program, patience)
	}
}

func (n *node) stop() {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(15 * time.Second):
		_ = n.cmd.Process.Kill()
		<-n.done
	}
}

// prepare publishes the plan of the suite, and makes the tenant, its grants and its key.
func (n *node) prepare(ctx context.Context, s suite) (string, error) {
	etag, _, err := n.post(ctx, "/v1/plans", map[string]any{"slug": "conformance", "draft": s.Plan}, "")
	if err == nil {
		_, _, err = n.post(ctx, "/v1/plans/conformance/publish", map[string]any{}, etag)
	}
	if err == nil {
		document := map[string]any{"name": "Conformance", "plan": "conformance"}
		_, _, err = n.post(ctx, "/v1/tenants", map[string]any{"slug": "conformance", "tenant": document}, "")
	}
	for _, g := range s.Grants {
		if g["expires_at"] = time.Now().AddDate(0, 1, 0).UTC().Format(time.RFC3339); err == nil {
			_, _, err = n.post(ctx, "/v1/tenants/conformance/grants", g, "")
		}
	}
	if err != nil {
		return "", err
	}
	_, body, err := n.post(ctx, "/v1/tenants/conformance/keys", map[string]any{"name": "sdk", "scopes": []string{"check"}}, "")
	if err != nil {
		return "", err
	}
	var made struct {
		Token string `json:"token"`
	}
	return made.Token, json.Unmarshal(body, &made)
}

func (n *node) post(ctx context.Context, path string, body any, etag string) (string, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+path, bytes.NewReader(text))
	if err != nil {
		return "", nil, err
	}
	r.Header.Set("Authorization", "Bearer "+n.token)
	r.Header.Set("Content-Type", "application/json")
	if etag != "" {
		r.Header.Set("If-Match", etag)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("POST %s: %s %s", path, response.Status, answer)
	}
	return response.Header.Get("ETag"), answer, err
}

// refusing returns an address that refuses connections: its port is bound, so that no other
// program uses it, but nothing listens on it. Call the returned function to free the port.
func refusing() (string, func(), error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return "", nil, err
	}
	shut := func() { _ = syscall.Close(fd) }
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		shut()
		return "", nil, err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		shut()
		return "", nil, err
	}
	port := at.(*syscall.SockaddrInet4).Port
	return "http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(port)), shut, nil
}
