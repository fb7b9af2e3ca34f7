package headgate

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

const allowed = `{"kind":"decision","allowed":true,"decision_id":"01939c1e-5a7b-7c3d-9e2f-0a1b2c3d4e5f","tenant":"acme","plan":"pro","plan_version":1,` +
	`"mode":"enforce","reason":"ok","retry_after_ms":0,"delay_ms":0,"degraded":false,"limits":[{"policy":"login-per-ip","limit":"l1",` +
	`"algorithm":"sliding_window_log","quota":5,"window_ms":60000,"cost":1,"remaining":4,"reset_after_ms":60000,"retry_after_ms":0,"allowed":true,"mode":"enforce"}]}`

var login = CheckRequest{Tenant: "acme", Method: "POST", Path: "/v1/login", Attributes: map[string]string{"ip": "203.0.113.9"}}

func answering(t testing.TB, status int, text string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("RateLimit", `"login-per-ip";r=4;t=60`)
		w.Header().Set("RateLimit-Policy", `"login-per-ip";q=5;w=60`)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server
}

func newClient(t testing.TB, config Config) *Client {
	config.Token = "hg_op_x"
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// bare returns a call with http.Client that sends the same request with the same deadline
// and reads the answer, without decoding it.
func bare(t testing.TB, url string) func() {
	client := &http.Client{Timeout: 10 * time.Second, Transport: newPool()}
	t.Cleanup(client.CloseIdleConnections)
	return func() {
		body := login.append(make([]byte, 0, 256))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/check", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer hg_op_x")
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("User-Agent", "headgate-go/"+Version)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
}

// A check allocates no more than a bare call with http.Client and the decision.
func TestCheckAllocatesOnlyTheDecision(t *testing.T) {
	server := answering(t, http.StatusOK, allowed)
	c := newClient(t, Config{URL: server.URL})
	call := bare(t, server.URL)
	check := func() {
		if d := c.Check(t.Context(), login); !d.Allowed || d.Err != nil {
			t.Fatal(d)
		}
	}
	decision := func() {
		var d Decision
		if err := json.Unmarshal([]byte(allowed), &d); err != nil {
			t.Fatal(err)
		}
	}
	ours, http, decode := testing.AllocsPerRun(500, check), testing.AllocsPerRun(500, call), testing.AllocsPerRun(500, decision)
	t.Logf("allocations: check %.0f, bare http.Client %.0f, decision %.0f", ours, http, decode)
	if ours > http+decode {
		t.Errorf("a check allocates %.0f times, a bare call %.0f and a decision %.0f", ours, http, decode)
	}
}

// BenchmarkOverhead reports the time of a check as a ratio to a bare call with
// http.Client. The two alternate, because the speed of a shared machine changes; ratio is
// the median over the rounds.
func BenchmarkOverhead(b *testing.B) {
	server := answering(b, http.StatusOK, allowed)
	c := newClient(b, Config{URL: server.URL})
	call := bare(b, server.URL)
	const each = 1
	var ratios []float64
	var checks, calls time.Duration
	round := func(f func()) time.Duration {
		start := time.Now()
		for range each {
			f()
		}
		return time.Since(start)
	}
	check := func() { c.Check(b.Context(), login) }
	round(check)
	round(call)
	for b.Loop() {
		ours := round(check)
		http := round(call)
		checks, calls = checks+ours, calls+http
		ratios = append(ratios, float64(ours)/float64(http))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(float64(checks.Nanoseconds())/float64(each*len(ratios)), "ns/check")
	b.ReportMetric(float64(calls.Nanoseconds())/float64(each*len(ratios)), "ns/bare")
	b.ReportMetric(0, "ns/op")
}
