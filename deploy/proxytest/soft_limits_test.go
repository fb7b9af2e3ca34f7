package proxytest

import (
	"net/http"
	"slices"
	"testing"
)

// softHeaders are the headers of Headgate's answer that the API receives. Their names are not canonical, as a client may
// write them.
var softHeaders = []string{"X-RateLimit-Serve", "X-RateLimit-Delay-Ms"}

// forgedSoftHeaders are the headers of a client that pretends to be over soft limits.
var forgedSoftHeaders = []string{"X-RateLimit-Serve", "forged", "x-ratelimit-delay-ms", "60000", "RateLimit", "forged", "RateLimit-Policy", "forged"}

// wantSoftHeaders checks the soft headers that the API received: one value for each, or none if the value is "".
func wantSoftHeaders(t *testing.T, a *http.Response, serve, delay string) {
	t.Helper()
	for i, want := range []string{serve, delay} {
		got := a.Header.Values("Received-" + softHeaders[i])
		if want == "" && len(got) != 0 || want != "" && !slices.Equal(got, []string{want}) {
			t.Errorf("the API received %s: %q, want %q", softHeaders[i], got, want)
		}
	}
}

// Each recipe passes on how Headgate degrades or delays a request, and drops what the client says about it, also while
// Headgate is gone.
func TestRecipesPassOnSoftLimits(t *testing.T) {
	for _, g := range append(slices.Clone(gateways), quotaGateway) {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			headgate, services, upstream := freeAddress(t), freeAddress(t), upstreamOf(t)
			startHeadgate(t, headgate, services, "HEADGATE_BOOTSTRAP_KEY="+operatorKey, "HEADGATE_SAMPLE=false")
			key := createTenant(t, headgate, `
				{"slug": "full", "match": {"path": "/v1/soft"}, "mode": "degrade", "limits": [{"algorithm": "fixed_window", "quota": 1, "window": "1d"}]},
				{"slug": "fast", "match": {"path": "/v1/soft"}, "mode": "delay", "delay_ms": 1500, "limits": [{"algorithm": "fixed_window", "quota": 1, "window": "1d"}]},
				{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 1000, "window": "1d"}]}`)
			if g.GRPC {
				headgate = services
			}
			url := g.serve(t, headgate, upstream, key)
			for i := range 2 {
				a, text := send(t, url+"/v1/soft", "x", forgedSoftHeaders...)
				if a.StatusCode != 200 {
					t.Fatalf("%d: %d %q", i, a.StatusCode, text)
				}
				if i == 0 || g.Name == quotaGateway.Name {
					wantSoftHeaders(t, a, "", "")
				} else {
					wantSoftHeaders(t, a, "cheap", "1500")
				}
			}
			if g.closing == nil {
				return
			}
			a, text := send(t, g.serve(t, freeAddress(t), upstream, key)+"/v1/soft", "x", forgedSoftHeaders...)
			if a.StatusCode != 200 {
				t.Fatalf("without Headgate: %d %q", a.StatusCode, text)
			}
			wantSoftHeaders(t, a, "", "")
			if limit, policy := g.limits(a); g.toAPI && limit+policy != "" {
				t.Errorf("without Headgate, the API received the limits %q and %q", limit, policy)
			}
		})
	}
}
