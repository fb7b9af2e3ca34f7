package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/internal/cli"
)

// examine runs headgate doctor and returns its findings by check. It joins the details of one check.
func examine(t *testing.T, settings map[string]string) (found map[string]finding, err error) {
	t.Helper()
	var out, talk bytes.Buffer
	p := program{
		getenv: func(name string) string { return settings[name] }, stdin: strings.NewReader(""), stdout: &out, stderr: &talk,
		environ: func() (list []string) {
			for name, value := range settings {
				list = append(list, name+"="+value)
			}
			return list
		},
	}
	err = p.run(t.Context(), []string{"doctor", "-o", "json", "--wait", "30s"})
	var is struct{ Findings []finding }
	if json.Unmarshal(out.Bytes(), &is) != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	found = map[string]finding{}
	for _, f := range is.Findings {
		if (f.Status == statusOK) != (f.Advice == "") {
			t.Errorf("%+v: what is not ok needs advice", f)
		}
		f.Detail = found[f.Check].Detail + f.Detail + "\n"
		found[f.Check] = f
	}
	return found, err
}

func expect(t *testing.T, found map[string]finding, check, status, detail string) {
	t.Helper()
	if f := found[check]; f.Status != status || !strings.Contains(f.Detail, detail) {
		t.Errorf("%s: %+v, want %s with %q", check, f, status, detail)
	}
}

func TestDoctorOfNewInstallation(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	settings := map[string]string{"HEADGATE_DATABASE_URL": "sqlite://" + filepath.Join(folder, "new", "headgate.db"), "HEADGATE_ADDR": "127.0.0.1:0"}
	found, err := examine(t, settings)
	if err != nil {
		t.Error(err)
	}
	expect(t, found, "settings", statusOK, "valid")
	expect(t, found, "database", statusOK, "does not exist yet")
	expect(t, found, "redis", statusOK, "not used")
	expect(t, found, "addr", statusOK, "is free")
	expect(t, found, "secrets", statusOK, "")
	expect(t, found, "trusted-proxies", statusOK, "set HEADGATE_TRUSTED_PROXIES to its network")
	settings["HEADGATE_TRUSTED_PROXIES"] = "10.0.0.0/8,192.0.2.1/32"
	found, _ = examine(t, settings)
	expect(t, found, "trusted-proxies", statusOK, "2 networks")
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("doctor left %v in the folder: %v", entries, err)
	}
	if out := must(t, settings, "doctor"); !strings.Contains(out, "CHECK") || !strings.Contains(out, "valid") {
		t.Errorf("table:\n%s", out)
	}
}

func TestDoctorOfRunningNode(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_RESP_ADDR": "127.0.0.1:0", "HEADGATE_ENVOY_ADDR": "127.0.0.1:0"}
	node := start(t, settings)
	settings["HEADGATE_RESP_ADDR"] = node.await(node.logs, regexp.MustCompile(`serving the Redis protocol".*"addr":"([^"]+)"`))[1]
	settings["HEADGATE_ENVOY_ADDR"] = node.await(node.logs, regexp.MustCompile(`serving the gRPC services of Envoy".*"addr":"([^"]+)"`))[1]
	settings["HEADGATE_ADDR"] = strings.TrimPrefix(node.origin, "http://")
	settings["HEADGATE_PUBLIC_URL"] = node.origin
	found, err := examine(t, settings)
	if err != nil {
		t.Error(err)
	}
	for _, setting := range []string{"addr", "resp-addr", "envoy-addr"} {
		expect(t, found, setting, statusOK, "is in use, and a node serves at it")
	}
	expect(t, found, "database", statusOK, "schema version")
	expect(t, found, "public-url", statusOK, node.origin)
	expect(t, found, "server-clock", statusOK, "differs by less than")
}

func TestDoctorFindsPortsThatCollide(t *testing.T) {
	t.Parallel()
	first, other := httptest.NewServer(http.NotFoundHandler()), httptest.NewServer(http.NotFoundHandler())
	defer first.Close()
	defer other.Close()
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()),
		"HEADGATE_ADDR":         first.Listener.Addr().String(),
		"HEADGATE_RESP_ADDR":    other.Listener.Addr().String(),
		"HEADGATE_ENVOY_ADDR":   "127.0.0.1:0",
	}
	_, port, _ := net.SplitHostPort(settings["HEADGATE_ADDR"])
	settings["HEADGATE_METRICS_ADDR"] = ":" + port
	found, _ := examine(t, settings)
	expect(t, found, "addr", statusError, "no node serves at it")
	expect(t, found, "metrics-addr", statusError, ":"+port+" has the port of HEADGATE_ADDR")
	expect(t, found, "resp-addr", statusError, `answers HELLO with "HTTP/1.1 400 Bad Request"`)
	expect(t, found, "envoy-addr", statusOK, "is free")
}

// A node that serves checks does not make another program on its other ports a node.
func TestDoctorFindsOtherProgramsOnPorts(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	calls, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(calls) }()
	defer server.Stop()
	for _, test := range []struct{ resp, envoy, ofResp, ofEnvoy string }{
		{web.Listener.Addr().String(), web.Listener.Addr().String(), `answers HELLO with "HTTP/1.1 400 Bad Request"`, "does not answer as a gRPC server"},
		{calls.Addr().String(), calls.Addr().String(), "answers HELLO with", "does not serve Envoy's rate limits"},
		{silent.Addr().String(), silent.Addr().String(), "does not answer HELLO", "does not answer as a gRPC server"},
	} {
		settings := map[string]string{
			"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_ADDR": strings.TrimPrefix(node.origin, "http://"),
			"HEADGATE_RESP_ADDR": test.resp,
		}
		found, _ := examine(t, settings)
		expect(t, found, "addr", statusOK, "a node serves at it")
		expect(t, found, "resp-addr", statusError, test.ofResp)
		delete(settings, "HEADGATE_RESP_ADDR")
		settings["HEADGATE_ENVOY_ADDR"] = test.envoy
		found, _ = examine(t, settings)
		expect(t, found, "envoy-addr", statusError, test.ofEnvoy)
	}
}

// Each problem of an installation is a finding of its own. One problem does not hide another.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	_ = l.Close()
	secret := filepath.Join(t.TempDir(), "redis")
	if err := os.WriteFile(secret, []byte("redis://"+gone+"\n"), 0o644); err != nil { //nolint:gosec // the fault
		t.Fatal(err)
	}
	settings := map[string]string{
		"HEADGATE_DATABASE_URL":    "sqlite://" + secret + "/headgate.db",
		"HEADGATE_REDIS_URL_FILE":  secret,
		"HEADGATE_REDSI_STRICT":    "true",
		"HEADGATE_ADDR":            other.Listener.Addr().String(),
		"HEADGATE_TRUSTED_PROXIES": "10.0.0.0/8,::/0",
		"HEADGATE_HEADERS":         "nonsense",
		"HEADGATE_MAX_CONNECTIONS": "1000000",
		"HEADGATE_PUBLIC_URL":      "http://" + gone,
	}
	found, err := examine(t, settings)
	if exitCode(err) != cli.ExitFindings {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	expect(t, found, "settings", statusError, "HEADGATE_HEADERS")
	expect(t, found, "secrets", statusError, secret)
	expect(t, found, "database", statusError, "")
	expect(t, found, "redis", statusError, gone)
	expect(t, found, "addr", statusError, "no node serves")
	expect(t, found, "trusted-proxies", statusError, "::/0")
	expect(t, found, "public-url", statusWarning, gone)
	expect(t, found, "settings", statusError, `did you mean "HEADGATE_REDIS_STRICT"?`)
	if f := found["open-files"]; f.Status == "" {
		t.Error("no finding about open files")
	}
	out, err := command(t, settings, "", "doctor")
	if err == nil || strings.Contains(out, "\x1b") {
		t.Errorf("table: %v\n%s", err, out)
	}
}
