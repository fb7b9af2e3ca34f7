package proxytest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/deploy/recipes"
)

// quotaGateway is the recipe in which Envoy decides with quota that it has in advance. Its answers have no headers of
// Headgate.
var quotaGateway = gateway{
	Recipe:  recipes.Named("Envoy rate_limit_quota"),
	closing: []string{"blanket_rule: ALLOW_ALL", "blanket_rule: DENY_ALL"}, closed: 429,
}

// An operator key that the settings contain.
const operatorKey = "quota-test-operator-key-quota-test-operator-key"

// limitItems creates a tenant whose addresses have a quota of items in a day, and returns its key.
func limitItems(t *testing.T, headgate string, quota int) string {
	t.Helper()
	return createTenant(t, headgate, fmt.Sprintf(
		`{"slug": "items", "match": {"path": "/v1/items"}, "count_by": ["ip"], "limits": [{"algorithm": "fixed_window", "quota": %d, "window": "1d"}]}`, quota))
}

// createTenant creates the tenant acme with these policies, and returns its key.
func createTenant(t *testing.T, headgate, policies string) string {
	t.Helper()
	manage := func(method, path, body string, header ...string) *http.Response {
		t.Helper()
		a, text := sendAs(t, method, "http://"+headgate+path, body, append(header, "Authorization", "Bearer "+operatorKey, "Content-Type", "application/json")...)
		if a.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, a.StatusCode, text)
		}
		a.Body = io.NopCloser(strings.NewReader(text))
		return a
	}
	made := manage("POST", "/v1/plans", `{"slug": "quota", "draft": {"name": "Quota", "policies": [`+policies+`]}}`)
	manage("POST", "/v1/plans/quota/publish", "", "If-Match", made.Header.Get("ETag"))
	manage("POST", "/v1/tenants", `{"slug": "acme", "tenant": {"name": "Acme", "plan": "quota"}}`)
	var key struct{ Token string }
	if err := json.NewDecoder(manage("POST", "/v1/tenants/acme/keys", `{"name": "envoy", "scopes": ["check"]}`).Body).Decode(&key); err != nil {
		t.Fatal(err)
	}
	return key.Token
}

// Two Envoys share a limit. Together they allow no more than it, also after one of them is killed: what that one had
// is an assignment at most.
func TestEnvoysShareAQuota(t *testing.T) {
	t.Parallel()
	const quota, assignment = 300, 30
	headgate, services, upstream := freeAddress(t), freeAddress(t), upstreamOf(t)
	startHeadgate(t, headgate, services, "HEADGATE_BOOTSTRAP_KEY="+operatorKey, "HEADGATE_SAMPLE=false")
	key := limitItems(t, headgate, quota)
	first := quotaGateway.serve(t, services, upstream, key, quotaGateway.closing...)
	second, kill := quotaGateway.serveUntil(t, services, upstream, key, quotaGateway.closing...)

	// The load ends when most of the limit is used, and the first Envoy then denies requests for some reports on end.
	var mu sync.Mutex
	allowed := map[string]int{}
	load := func(ctx context.Context, origin string, done func(sinceAllowed time.Duration, allowed, sum int) bool) {
		last := time.Now()
		for ctx.Err() == nil {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+"/v1/items", nil)
			if err != nil {
				t.Error(err)
				return
			}
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				continue // killed
			}
			_ = a.Body.Close()
			mu.Lock()
			switch a.StatusCode {
			case 200:
				allowed[origin]++
				last = time.Now()
			case 429:
			default:
				t.Errorf("status %d", a.StatusCode)
			}
			n, sum := allowed[origin], allowed[first]+allowed[second]
			mu.Unlock()
			if done(time.Since(last), n, sum) {
				return
			}
			<-time.After(10 * time.Millisecond) // so that a denying Envoy does not use up the machine
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*deadline)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() {
		load(ctx, second, func(_ time.Duration, n, _ int) bool { return n >= 40 })
		kill()
	})
	both.Go(func() {
		load(ctx, first, func(since time.Duration, _, sum int) bool { return sum >= quota-assignment && since > 12*time.Second })
	})
	both.Wait()
	t.Logf("allowed %d and %d of %d", allowed[first], allowed[second], quota)
	if sum := allowed[first] + allowed[second]; ctx.Err() != nil || sum > quota || sum < quota-assignment || allowed[second] < 40 {
		t.Errorf("%v allowed, want %d to %d in all", allowed, quota-assignment, quota)
	}
}
