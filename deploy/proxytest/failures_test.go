package proxytest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/deploy/recipes"
)

// A denial or an error of Headgate arrives at the client with its status, its headers, and its problem document. nginx
// writes the document itself. Envoy takes 503 for a failure of Headgate.
func TestRecipesPassOnDenials(t *testing.T) {
	for _, g := range gateways {
		if g.GRPC {
			continue
		}
		for _, status := range []int{400, 401, 403, 429, 503} {
			t.Run(fmt.Sprint(g.Name, " ", status), func(t *testing.T) {
				t.Parallel()
				problem := fmt.Sprintf(`{"title":"From Headgate","status":%d,"request_id":"id-1"}`, status)
				headers := map[string]string{
					"Content-Type": "application/problem+json", "X-Request-Id": "id-1", "RateLimit": `"p";r=0;t=7`, "RateLimit-Policy": `"p";q=5;w=60`,
				}
				switch status {
				case 401:
					headers["Www-Authenticate"] = `Bearer realm="headgate"`
				case 429, 503:
					headers["Retry-After"] = "7"
				}
				headgate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/readyz" { // a gateway with health checks calls it without a key
						return
					}
					for name, value := range headers {
						w.Header().Set(name, value)
					}
					w.WriteHeader(status)
					_, _ = w.Write([]byte(problem))
				}))
				t.Cleanup(headgate.Close)
				a, text := send(t, g.serve(t, headgate.Listener.Addr().String(), upstreamOf(t), "key")+"/v1/login", "x")
				if status == 503 && g.Name == "Envoy" {
					if a.StatusCode != 200 {
						t.Errorf("%d %q", a.StatusCode, text)
					}
					return
				}
				for name, want := range headers {
					if got := a.Header.Values(name); len(got) != 1 || got[0] != want {
						t.Errorf("%s: %q, want %q", name, got, want)
					}
				}
				whole := text == problem
				if g.Name == "nginx" {
					whole = strings.Contains(text, fmt.Sprintf(`"status":%d,"request_id":"id-1"}`, status))
				}
				if a.StatusCode != status || !whole {
					t.Errorf("%d %q", a.StatusCode, text)
				}
			})
		}
	}
}

// For a gateway, a node that starts is gone.
func TestRecipesWhileHeadgateStarts(t *testing.T) {
	headgate, services, upstream := freeAddress(t), freeAddress(t), upstreamOf(t)
	startWaitingHeadgate(t, headgate, services)
	for _, g := range gateways {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			asked := headgate
			if g.GRPC {
				asked = services
			}
			if g.closing != nil {
				if a, text := send(t, g.serve(t, asked, upstream, "key")+"/v1/login", "x"); a.StatusCode != 200 || text != "POST 1" {
					t.Errorf("open: %d %q", a.StatusCode, text)
				}
			}
			if a, text := send(t, g.serve(t, asked, upstream, "key", g.closing...)+"/v1/login", "x"); a.StatusCode != g.closed {
				t.Errorf("closed: %d %q, want %d", a.StatusCode, text, g.closed)
			}
		})
	}
}

// For a gateway, an overloaded node is gone: it is ready, and closes the connection of each check. nginx asks another
// node. The gRPC services answer UNAVAILABLE, as those of a node that starts.
func TestRecipesWhileHeadgateIsOverloaded(t *testing.T) {
	overloaded := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" { // a gateway with health checks calls it
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(overloaded.Close)
	headgate, upstream := overloaded.Listener.Addr().String(), upstreamOf(t)
	for _, g := range gateways {
		if g.GRPC {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			if g.closing != nil {
				if a, text := send(t, g.serve(t, headgate, upstream, "key")+"/v1/login", "x"); a.StatusCode != 200 || text != "POST 1" {
					t.Errorf("open: %d %q", a.StatusCode, text)
				}
			}
			if a, text := send(t, g.serve(t, headgate, upstream, "key", g.closing...)+"/v1/login", "x"); a.StatusCode != g.closed {
				t.Errorf("closed: %d %q, want %d", a.StatusCode, text, g.closed)
			}
		})
	}
}

// startWaitingHeadgate starts a Headgate that waits for its database until the test ends.
func startWaitingHeadgate(t *testing.T, address, services string) {
	t.Helper()
	binary, err := filepath.Abs(headgateBinary)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "--addr", address)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HEADGATE_TRUSTED_PROXIES=127.0.0.1/32", "HEADGATE_LOG_LEVEL=error", "HEADGATE_ENVOY_ADDR="+services,
		"HEADGATE_DATABASE_URL=postgres://headgate@"+freeAddress(t)+"/headgate")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	start(t, address, cmd)
}

// Headgate receives the host of the request in the header that its options name, whatever the client says in it.
func TestRecipesNameTheHost(t *testing.T) {
	for _, g := range gateways {
		if g.GRPC || g.Name == "Envoy" { // it has no options over HTTP
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan *http.Request, 10)
			headgate := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" {
					asked <- r
				}
			}))
			t.Cleanup(headgate.Close)
			url := g.serve(t, headgate.Listener.Addr().String(), upstreamOf(t), "key")
			send(t, url+"/v1/login", "x", "X-Original-Host", "evil.example.com", "X-Forwarded-Host", "evil.example.com")
			for len(asked) > 0 {
				r := <-asked
				if r.Header.Get("X-Forwarded-Uri")+r.Header.Get("X-Original-Uri") != "/v1/login" {
					continue // a request with which the test waits for routes
				}
				name := "X-Original-Host"
				if r.URL.Query().Get("headers") == "forwarded" {
					name = "X-Forwarded-Host"
				}
				if got := r.Header.Values(name); r.Host != "headgate" || len(got) != 1 || !strings.HasPrefix(got[0], "127.0.0.1") {
					t.Errorf("Host %q, %s %q", r.Host, name, got)
				}
				return
			}
			t.Error("Headgate was not asked")
		})
	}
}

// nginx asks another node while one starts, and another one is gone.
func TestNginxAsksTheNextNode(t *testing.T) {
	t.Parallel()
	headgate, starting := freeAddress(t), freeAddress(t)
	startWaitingHeadgate(t, starting, freeAddress(t))
	key := startHeadgate(t, headgate, freeAddress(t))
	const node = "server 127.0.0.1:8080;"
	url := gateway{Recipe: recipes.Named("nginx")}.serve(t, headgate, upstreamOf(t), key, node, "server "+starting+"; server "+freeAddress(t)+"; "+node)
	for i := range 10 {
		a, text := send(t, url+"/v1/login", "x")
		if want := map[bool]int{true: 200, false: 429}[i < 5]; a.StatusCode != want || a.Header.Get("RateLimit") == "" {
			t.Fatalf("%d: %d %q %v, want %d", i, a.StatusCode, text, a.Header, want)
		}
	}
}

// If the API fails after Headgate allowed the request, Caddy does not send the request again. Its recipe does so only
// while Headgate is gone.
func TestCaddySendsNoRequestTwice(t *testing.T) {
	t.Parallel()
	headgate := freeAddress(t)
	key := startHeadgate(t, headgate, freeAddress(t))
	var received atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		received.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(api.Close)
	url := gateway{Recipe: recipes.Named("Caddy")}.serve(t, headgate, api.Listener.Addr().String(), key)
	a, text := sendAs(t, http.MethodGet, url+"/v1/items", "")
	if n := received.Load(); a.StatusCode != 502 || a.Header.Get("RateLimit") == "" || n != 1 {
		t.Errorf("%d %q %v; the API received %d requests", a.StatusCode, text, a.Header, n)
	}
}
