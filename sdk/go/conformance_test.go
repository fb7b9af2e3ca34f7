//go:build conformance

package headgate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	headgate "github.com/headgate/headgate/sdk/go"
)

// The scenarios of sdk/conformance, which starts the servers and runs this test.

type scenario struct {
	Name              string
	Target            string
	Client            map[string]any
	Steps             []step
	ExpectCalls       any            `json:"expect_calls"`
	ExpectRetries     any            `json:"expect_retries"`
	ExpectConnections any            `json:"expect_connections"`
	ExpectBodies      []any          `json:"expect_bodies"`
	ExpectHeaders     map[string]any `json:"expect_headers"`
	ExpectRequests    []string       `json:"expect_requests"`
}

type step struct {
	Check           *request
	Reserve         *reservation
	Settle          *headgate.Settlement
	Extend          *reservation
	Release         *struct{}
	Batch           []request
	Atomic          bool
	Expect          any
	MinMS           int64 `json:"min_ms"`
	MaxMS           int64 `json:"max_ms"`
	UntilCalls      int   `json:"until_calls"`
	CancelWhenCalls int   `json:"cancel_when_calls"`
}

type request struct {
	Tenant, Method, Path string
	Attributes           map[string]string
	Cost                 *int64
	Mode                 headgate.Mode
	Refundable           bool
	IdempotencyKey       string `json:"idempotency_key"`
	Lease                headgate.Lease
}

type reservation struct {
	request
	ID    string
	TTLMS int64 `json:"ttl_ms"`
}

type call struct {
	Method  string
	Path    string
	Headers map[string]any
	Body    any
	Remote  string
}

func TestConformance(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("HEADGATE_SCENARIOS"))
	if err != nil {
		t.Fatalf("%v: run this test with make test-sdk", err)
	}
	var suite struct{ Scenarios []scenario }
	if err := json.Unmarshal(text, &suite); err != nil {
		t.Fatal(err)
	}
	if len(suite.Scenarios) < 40 {
		t.Errorf("%d scenarios", len(suite.Scenarios))
	}
	for _, s := range suite.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			play(t, s)
		})
	}
}

// played is one run of a scenario.
type played struct {
	t       *testing.T
	url     string
	run     string
	client  *headgate.Client
	retries atomic.Int64
	held    *headgate.Reservation // the last one of the scenario
}

func play(t *testing.T, s scenario) {
	p := &played{t: t, run: fmt.Sprint(rand.Uint64())}
	config := headgate.Config{Token: os.Getenv("HEADGATE_TOKEN"), Timeout: 10 * time.Second}
	switch s.Target {
	case "faults":
		p.url = os.Getenv("HEADGATE_FAULTS_URL") + "/" + s.Name + "/" + p.run
		config.URL = p.url
	case "refused":
		config.URL = os.Getenv("HEADGATE_REFUSED_URL")
	default:
		config.URL = os.Getenv("HEADGATE_URL")
	}
	if n, set := s.Client["timeout_ms"]; set {
		config.Timeout = 0
		if ms, ok := n.(float64); ok {
			config.Timeout = time.Duration(ms) * time.Millisecond
		}
	}
	switch s.Client["token"] {
	case "tenant":
		config.Token = os.Getenv("HEADGATE_KEY")
	case "wrong":
		config.Token = "hg_op_wrong"
	}
	if mode, ok := s.Client["on_unreachable"].(string); ok {
		config.OnUnreachable = headgate.OnUnreachable(mode)
	}
	config.Decide = func(_ context.Context, r headgate.CheckRequest, err error) bool {
		return err != nil && r.Path == "/allow"
	}
	config.RememberDenials = s.Client["remember_denials"] == true
	if n, ok := s.Client["max_retries"].(float64); ok && n == 0 {
		config.MaxRetries = -1
	}
	config.Hooks.Retrying = func(context.Context, error, time.Duration) { p.retries.Add(1) }
	var err error
	if p.client, err = headgate.New(config); err != nil {
		t.Fatal(err)
	}
	defer p.client.Close()
	for i, step := range s.Steps {
		p.step(fmt.Sprintf("step %d", i+1), step)
	}
	if s.ExpectRetries != nil {
		p.match("retries", s.ExpectRetries, float64(p.retries.Load()))
	}
	if s.Target == "faults" {
		p.calls(s)
	}
}

func (p *played) step(name string, s step) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	if s.CancelWhenCalls > 0 {
		go func() {
			for ctx.Err() == nil && len(p.received()) < s.CancelWhenCalls {
			}
			cancel()
		}()
	}
	start := time.Now()
	var got any
	switch {
	case s.Reserve != nil:
		p.held = p.client.Reserve(ctx, headgate.ReservationRequest{
			CheckRequest: p.request(s.Reserve.request), ID: strings.ReplaceAll(s.Reserve.ID, "$run", p.run), TTL: time.Duration(s.Reserve.TTLMS) * time.Millisecond,
		})
		m := shown(p.held.Decision)
		m["held"] = p.held.Held()
		got = m
	case s.Settle != nil:
		got = map[string]any{"error": shownError(p.held.Settle(ctx, *s.Settle))}
	case s.Extend != nil:
		got = map[string]any{"error": shownError(p.held.Extend(ctx, time.Duration(s.Extend.TTLMS)*time.Millisecond))}
	case s.Release != nil:
		got = map[string]any{"error": shownError(p.held.Release(ctx))}
	case s.Check != nil:
		d := p.client.Check(ctx, p.request(*s.Check))
		for len(p.received()) < s.UntilCalls && time.Since(start) < time.Minute {
			d = p.client.Check(ctx, p.request(*s.Check))
		}
		got = shown(d)
	default:
		list := make([]headgate.CheckRequest, len(s.Batch))
		for i, r := range s.Batch {
			list[i] = p.request(r)
		}
		results := []any{}
		for _, d := range p.client.CheckBatch(ctx, list, s.Atomic) {
			results = append(results, shown(d))
		}
		got = results
	}
	elapsed := time.Since(start).Milliseconds()
	if p.match(name, s.Expect, got); p.t.Failed() {
		p.t.Logf("%s: %v", name, got)
	}
	if elapsed < s.MinMS || s.MaxMS > 0 && elapsed > s.MaxMS {
		p.t.Errorf("%s took %d ms", name, elapsed)
	}
}

func (p *played) request(r request) headgate.CheckRequest {
	attributes, filled := map[string]string{}, strings.NewReplacer("$user", "u"+p.run, "$run", p.run)
	for name, value := range r.Attributes {
		attributes[name] = filled.Replace(value)
	}
	return headgate.CheckRequest{
		Tenant: r.Tenant, Method: r.Method, Path: r.Path, Attributes: attributes, Cost: r.Cost, Mode: r.Mode, Refundable: r.Refundable,
		IdempotencyKey: filled.Replace(r.IdempotencyKey), Lease: r.Lease,
	}
}

// shown returns a decision in the form of the file.
func shown(d headgate.Decision) map[string]any {
	text, _ := json.Marshal(d)
	var m map[string]any
	_ = json.Unmarshal(text, &m)
	m["violated_policies"] = m["violated-policies"]
	m["remembered"] = d.Remembered
	headers := http.Header{}
	d.SetHeaders(headers)
	shownHeaders := map[string]any{}
	for name := range headers {
		shownHeaders[strings.ToLower(name)] = headers.Get(name)
	}
	m["headers"] = shownHeaders
	m["error"] = shownError(d.Err)
	return m
}

// shownError returns an error in the form of the file, or nil.
func shownError(err error) any {
	var unreachable *headgate.UnreachableError
	var problem *headgate.ProblemError
	switch {
	case errors.As(err, &unreachable):
		return map[string]any{"kind": "unreachable", "code": string(unreachable.Code), "text": err.Error()}
	case errors.As(err, &problem):
		text, _ := json.Marshal(problem)
		var e map[string]any
		_ = json.Unmarshal(text, &e)
		e["kind"] = "problem"
		return e
	case err != nil:
		return err.Error()
	}
	return nil
}

func (p *played) received() []call {
	if p.url == "" {
		return nil
	}
	response, err := http.Get(p.url + "/calls")
	if err != nil {
		p.t.Error(err)
		return nil
	}
	defer response.Body.Close()
	var calls []call
	if err := json.NewDecoder(response.Body).Decode(&calls); err != nil {
		p.t.Error(err)
	}
	return calls
}

func (p *played) calls(s scenario) {
	calls := p.received()
	if s.ExpectCalls != nil {
		p.match("calls", s.ExpectCalls, float64(len(calls)))
	}
	connections := map[string]bool{}
	requests := []string{}
	for i, c := range calls {
		requests = append(requests, c.Method+" "+c.Path)
		connections[c.Remote] = true
		if s.ExpectHeaders != nil {
			p.match("headers", s.ExpectHeaders, c.Headers)
		}
		if s.ExpectBodies != nil {
			want, _ := json.Marshal(s.ExpectBodies[i])
			got, _ := json.Marshal(c.Body)
			if !bytes.Equal(want, got) {
				p.t.Errorf("body %d is %s, want %s", i+1, got, want)
			}
		}
	}
	if s.ExpectRequests != nil && !slices.Equal(requests, s.ExpectRequests) {
		p.t.Errorf("the requests are %q, want %q", requests, s.ExpectRequests)
	}
	if s.ExpectConnections != nil {
		p.match("connections", s.ExpectConnections, float64(len(connections)))
	}
}

// match reports where got differs from want; scenarios.json has the rules.
func (p *played) match(at string, want, got any) {
	p.t.Helper()
	switch w := want.(type) {
	case map[string]any:
		if pattern, ok := w["$match"].(string); ok {
			if text, ok := got.(string); !ok || !regexp.MustCompile(pattern).MatchString(text) {
				p.t.Errorf("%s is %v, want a match of %s", at, got, pattern)
			}
			return
		}
		if low, ok := w["$min"].(float64); ok {
			if n, ok := got.(float64); !ok || n < low || n > w["$max"].(float64) {
				p.t.Errorf("%s is %v, want %v to %v", at, got, low, w["$max"])
			}
			return
		}
		m, ok := got.(map[string]any)
		if !ok {
			p.t.Errorf("%s is %v, want an object", at, got)
			return
		}
		for name, value := range w {
			p.match(at+"."+name, value, m[name])
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(w) {
			p.t.Errorf("%s is %v, want %d items", at, got, len(w))
			return
		}
		for i := range w {
			p.match(fmt.Sprintf("%s[%d]", at, i), w[i], list[i])
		}
	default:
		if got != want {
			p.t.Errorf("%s is %v, want %v", at, got, want)
		}
	}
}
