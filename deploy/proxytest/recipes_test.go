package proxytest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/deploy/recipes"
)

// A gateway is a recipe of deploy/, and what its tests expect.
type gateway struct {
	recipes.Recipe
	// closing are the edits with which the gateway denies requests while Headgate is gone, or nil if the recipe does it.
	// closed is the status of such a denial.
	closing []string
	closed  int
	// http2 are the edits with which the gateway speaks HTTP/2 without TLS, if the recipe does not do it.
	http2 []string
	// toAPI is set if the gateway can copy the headers of an allowed request only to the API, and not to the client.
	toAPI bool
}

var gateways = []gateway{
	{
		Recipe:  recipes.Named("nginx"),
		closing: []string{"error_page 502 504 =204 /headgate-gone;", ""}, closed: 500,
		http2: []string{"listen 127.0.0.1:8000", "listen 127.0.0.1:8000 http2"},
	},
	{
		Recipe:  recipes.Named("Caddy"),
		closing: []string{"reverse_proxy @undecided 127.0.0.1:9000", ""}, closed: 502,
		http2: []string{"admin off", "admin off\n\tservers {\n\t\tprotocols h1 h2c\n\t}"},
	},
	{Recipe: recipes.Named("Apache"), closing: []string{"headgate_failure=open", "headgate_failure=closed"}, closed: 503},
	{
		Recipe:  recipes.Named("HAProxy"),
		closing: []string{"# http-request return", "http-request return"}, closed: 503,
		http2: []string{"bind 127.0.0.1:8000", "bind 127.0.0.1:8000 proto h2"},
	},
	{
		Recipe:  recipes.Named("Traefik"),
		closing: []string{"service: headgate-or-pass", "service: headgate"}, closed: 502, toAPI: true,
	},
	{Recipe: recipes.Named("Envoy"), closing: []string{"failure_mode_allow: true", "failure_mode_allow: false"}, closed: 403},
	{Recipe: recipes.Named("Envoy ext_authz"), closing: []string{"failure_mode_allow: true", "failure_mode_allow: false"}, closed: 403},
	envoyRateLimit,
}

var envoyRateLimit = gateway{
	Recipe:  recipes.Named("Envoy ratelimit"),
	closing: []string{"failure_mode_deny: false", "failure_mode_deny: true"}, closed: 500,
}

// serve starts a gateway with its recipe on other addresses, and returns its origin.
func (g gateway) serve(t *testing.T, headgate, upstream, key string, edits ...string) string {
	t.Helper()
	origin, _ := g.serveUntil(t, headgate, upstream, key, edits...)
	return origin
}

// serveUntil is serve with a function that kills the gateway.
func (g gateway) serveUntil(t *testing.T, headgate, upstream, key string, edits ...string) (origin string, kill func()) {
	t.Helper()
	folder, address := t.TempDir(), freeAddress(t)
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { // Apache reads headgate.lua as another user
		t.Fatal(err)
	}
	file, err := g.Write("..", folder, recipes.Addresses{
		Headgate: headgate, Upstream: upstream, Gateway: address, Inner: freeAddress(t), Key: key,
	}, false, edits...)
	if err != nil {
		t.Fatal(err)
	}
	args := g.Command(file)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "HOME="+folder)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	origin, kill = "http://"+address, start(t, address, cmd)
	if g.Loads {
		end := time.Now().Add(deadline)
		for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
			if a, _ := sendAs(t, http.MethodGet, origin, ""); a.StatusCode != http.StatusNotFound {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s loads no routes", g.Name)
			}
		}
	}
	return origin, kill
}

// serveWithHeadgate starts Headgate, an upstream, and a gateway with its recipe, and returns the origin of the gateway.
func (g gateway) serveWithHeadgate(t *testing.T, edits ...string) string {
	t.Helper()
	headgate, services := freeAddress(t), freeAddress(t)
	key := startHeadgate(t, headgate, services, "HEADGATE_ALLOWED_HOSTS=headgate")
	if g.GRPC {
		headgate = services
	}
	return g.serve(t, headgate, upstreamOf(t), key, edits...)
}

// Each recipe passes as many requests as the quota, with whole bodies, and then denies, for
// every kind of client.
func TestRecipes(t *testing.T) {
	for _, g := range gateways {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			url := g.serveWithHeadgate(t)
			body := strings.Repeat("x", 1<<20)
			for i := range 5 {
				a, text := send(t, url+"/v1/login", body, "RateLimit", "forged", "Idempotency-Key", "the same", "X-Lease", "the same")
				limit, policy := g.limits(a)
				if a.StatusCode != 200 || text != "POST 1048576" || !strings.Contains(limit, ";r=") || !strings.Contains(policy, ";q=") {
					t.Fatalf("%d: %d %q %v", i, a.StatusCode, text, a.Header)
				}
			}
			for _, header := range [][]string{
				nil,
				{"X-Forwarded-For", "203.0.113.9"},
				{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/v1/items"},
				{"X-Original-Method", "GET", "X-Original-URI", "/v1/items"},
				{"Authorization", "Bearer x"},
				{"X-Headgate-Tenant", "other", "X-Cost", "0", "X-Mode", "peek"},
				{"Idempotency-Key", "the same", "X-Request-Key", "the same", "X-Lease", "the same"},
			} {
				a, text := send(t, url+"/v1/login?deny_status=403&cost=0&tenant=other", "", header...)
				if a.StatusCode != 429 || a.Header.Get("Retry-After") == "" || a.Header.Get("RateLimit") == "" ||
					a.Header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("%v: %d %q %v", header, a.StatusCode, text, a.Header)
				}
			}
			upgrade(t, strings.TrimPrefix(url, "http://"))
		})
	}
}

// limits returns the headers RateLimit and RateLimit-Policy that the gateway copied.
func (g gateway) limits(a *http.Response) (limit, policy string) {
	if g.toAPI && a.StatusCode == 200 {
		return a.Header.Get("Received-RateLimit"), a.Header.Get("Received-RateLimit-Policy")
	}
	return a.Header.Get("RateLimit"), a.Header.Get("RateLimit-Policy")
}

// Each recipe decides requests over HTTP/2 as those over HTTP/1.1.
func TestRecipesOverHTTP2(t *testing.T) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: deadline}
	for _, g := range gateways {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			url := g.serveWithHeadgate(t, g.http2...)
			for i := range 6 {
				a, err := client.Post(url+"/v1/login", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(a.Body) // a gateway may end the stream of a denied body
				_ = a.Body.Close()
				passed := a.StatusCode == 200 && string(text) == "POST 1048576"
				limit, _ := g.limits(a)
				if a.ProtoMajor != 2 || !strings.Contains(limit, ";r=") || passed != (i < 5) || i == 5 && (a.StatusCode != 429 || a.Header.Get("Retry-After") == "") {
					t.Fatalf("%d: %s %d %.80q %v", i, a.Proto, a.StatusCode, text, a.Header)
				}
			}
		})
	}
}

// The guides name each recipe.
func TestRecipesAreInTheGuides(t *testing.T) {
	t.Parallel()
	var guides strings.Builder
	for _, name := range []string{"gateways.md", "envoy.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		guides.Write(text)
	}
	for _, g := range append(slices.Clone(gateways), quotaGateway) {
		for _, name := range g.Files() {
			if path := "(../deploy/" + filepath.Dir(g.File) + "/" + name + ")"; !strings.Contains(guides.String(), path) {
				t.Errorf("docs/gateways.md and docs/envoy.md have no link %s", path)
			}
		}
	}
}

// The local limit of Envoy is checked first. Headgate does not receive the requests that it
// denies.
func TestEnvoyLocalAndSharedLimits(t *testing.T) {
	t.Parallel()
	headgate, services, upstream := freeAddress(t), freeAddress(t), upstreamOf(t)
	key := startHeadgate(t, headgate, services)
	small := envoyRateLimit.serve(t, services, upstream, key, "max_tokens: 1000, tokens_per_fill: 1000, fill_interval: 1s", "max_tokens: 3, tokens_per_fill: 3, fill_interval: 3600s")
	for i := range 5 {
		a, _ := send(t, small+"/v1/login", "x")
		if passed := a.StatusCode == 200 && a.Header.Get("RateLimit") != ""; passed != (i < 3) || !passed && (a.StatusCode != 429 || a.Header.Get("RateLimit") != "") {
			t.Fatalf("local limit, request %d: %d %v", i, a.StatusCode, a.Header)
		}
	}
	large := envoyRateLimit.serve(t, services, upstream, key)
	for i := range 3 { // 5 of the shared limit, 3 are used
		a, _ := send(t, large+"/v1/login", "x")
		if passed := a.StatusCode == 200; passed != (i < 2) || !passed && (a.StatusCode != 429 || a.Header.Get("Retry-After") == "") {
			t.Fatalf("shared limit, request %d: %d %v", i, a.StatusCode, a.Header)
		}
	}
}

// upgrade switches a connection to another protocol through the gateway, as a WebSocket does, and sends on it.
func upgrade(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(deadline))
	_, _ = fmt.Fprintf(conn, "GET /v1/socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", address)
	r := bufio.NewReader(conn)
	a, err := http.ReadResponse(r, nil)
	if err != nil || a.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v, %v", a, err)
	}
	_, _ = fmt.Fprintln(conn, "hello")
	if line, err := r.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("after the upgrade: %q, %v", line, err)
	}
}

// Headgate is gone, or accepts connections and never answers. Then a gateway passes requests or denies them, as its
// recipe says.
func TestRecipesWithoutHeadgate(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	upstream := upstreamOf(t)
	for _, g := range append(slices.Clone(gateways), quotaGateway) {
		for name, headgate := range map[string]string{"gone": freeAddress(t), "slow": silent.Addr().String()} {
			t.Run(g.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				if g.closing != nil {
					if a, text := send(t, g.serve(t, headgate, upstream, "key")+"/v1/login", "x"); a.StatusCode != 200 || text != "POST 1" || len(a.Header.Values("RateLimit")) != 0 {
						t.Errorf("open: %d %q %v", a.StatusCode, text, a.Header)
					}
				}
				a, text := send(t, g.serve(t, headgate, upstream, "key", g.closing...)+"/v1/login", "x")
				if want := g.closed; a.StatusCode != want && (want != 502 || a.StatusCode != 504) {
					t.Errorf("closed: %d %q, want %d", a.StatusCode, text, want)
				}
			})
		}
	}
}

// An error that Headgate answers, such as one for a wrong key or host, denies the request.
func TestRecipesWhenHeadgateAnswersAnError(t *testing.T) {
	for _, g := range gateways {
		if g.GRPC {
			continue
		}
		for status, kind := range map[int]string{401: "application/problem+json", 421: "text/plain"} {
			t.Run(fmt.Sprint(g.Name, " ", status), func(t *testing.T) {
				t.Parallel()
				headgate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/readyz" { // a gateway with health checks calls it without a key
						return
					}
					w.Header().Set("Content-Type", kind)
					w.WriteHeader(status)
				}))
				t.Cleanup(headgate.Close)
				if a, text := send(t, g.serve(t, headgate.Listener.Addr().String(), upstreamOf(t), "key")+"/v1/login", "x"); a.StatusCode < 400 {
					t.Errorf("%d %q", a.StatusCode, text)
				}
			})
		}
	}
}
