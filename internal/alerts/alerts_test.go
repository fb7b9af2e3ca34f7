package alerts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

// loopback allows receivers on this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// A site is a database with alerts and a clock that tests move.
type site struct {
	*testing.T
	*store.Store
	service *alerts.Service
	tenant  tenants.Tenant   // acme
	all     []tenants.Tenant // in the order of their slugs
	mu      sync.Mutex
	clock   time.Time
	batches int64
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, clock: time.Date(2026, 11, 22, 12, 0, 5, 0, time.UTC)}
	var err error
	s.Store, err = store.Open(t.Context(), store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Now: s.now, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Store.Close() })
	s.must(s.Migrate(t.Context()))
	s.service = alerts.NewService(s.Store, alerts.Config{Networks: loopback, Now: s.now})
	for _, slug := range []string{"acme", "globex", "initech"} {
		tenant, err := tenants.NewService(s.Store, tenants.Config{}).CreateTenant(t.Context(), slug, tenants.Document{Name: slug})
		s.must(err)
		s.all = append(s.all, tenant)
	}
	s.tenant = s.all[0]
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *site) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// count adds requests of the present minute.
func (s *site) count(requests, denied int64) {
	s.Helper()
	s.countOf(metrics.CountKey{Tenant: s.tenant.Number, Kind: metrics.KindTotal}, requests, denied)
}

// countOf adds requests of the present minute to a key.
func (s *site) countOf(key metrics.CountKey, requests, denied int64) {
	s.Helper()
	s.batches++
	key.At = s.now().Truncate(time.Minute).Unix()
	row := metrics.CountRow{
		CountKey: key,
		Counts:   metrics.Counts{Requests: requests, OK: requests - denied, OverLimit: denied},
	}
	s.must(s.AddCounts(s.Context(), metrics.Batch{Node: "n", Seq: s.batches, Counts: []metrics.CountRow{row}}))
}

// evaluator returns the evaluator of a node.
func (s *site) evaluator(node string) *alerts.Evaluator {
	return alerts.NewEvaluator(alerts.EvaluatorConfig{
		Store: s.Store, Holder: node, Now: s.now,
		Figures: alerts.Figures{
			Analytics: metrics.NewAnalytics(s.Store, metrics.AnalyticsConfig{Now: s.now}), Nodes: nodes.NewService(s.Store),
			Tenant: func(name string) (uint32, bool) {
				for _, t := range s.all {
					if name == t.Slug || name == t.ID {
						return t.Number, true
					}
				}
				return 0, false
			},
			Tenants: func() (slugs []string) {
				for _, t := range s.all {
					slugs = append(slugs, t.Slug)
				}
				return slugs
			},
		},
	})
}

func (s *site) sender() *alerts.Sender {
	return alerts.NewSender(alerts.SenderConfig{Store: s.Store, Networks: loopback, Now: s.now})
}

// send makes the attempts that are due.
func (s *site) send() {
	s.Helper()
	_, err := s.sender().Send(s.Context())
	s.must(err)
}

func (s *site) evaluate(e *alerts.Evaluator) {
	s.Helper()
	s.must(e.Evaluate(s.Context()))
}

// channel makes a webhook of the operator.
func (s *site) channel(url string) alerts.Channel {
	s.Helper()
	c, err := s.service.CreateChannel(s.Context(), "", alerts.ChannelDocument{Name: "on call", Kind: alerts.Webhook, URL: url})
	s.must(err)
	return c
}

// rule makes a rule of the operator about the tenant's 429 rate.
func (s *site) rule(channels ...string) alerts.Rule {
	s.Helper()
	r, err := s.service.CreateRule(s.Context(), "", alerts.Document{
		Name: "Acme is limited", Metric: alerts.DenialRate, Tenant: "acme", Window: time.Minute, Threshold: 20, Recovery: 10,
		For: 30 * time.Second, MinRequests: 10, Channels: channels,
	})
	s.must(err)
	return r
}

func (s *site) deliveries(status alerts.DeliveryStatus) []alerts.Delivery {
	s.Helper()
	list, err := s.service.Deliveries(s.Context(), "", alerts.Filter{Status: status})
	s.must(err)
	return list
}

// A receiver keeps the messages that it accepts and verifies their signatures.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	hook   *standardwebhooks.Webhook
	answer int // the status
	calls  int
	got    []string // the type and the ID of each accepted message
	faults []error
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{answer: http.StatusNoContent}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls++
		var message struct{ Type string }
		if r.hook != nil {
			err = errors.Join(err, r.hook.VerifyIgnoringTimestamp(body, request.Header), json.Unmarshal(body, &message))
		}
		if err != nil {
			r.faults = append(r.faults, err)
		}
		if r.answer/100 == 2 {
			r.got = append(r.got, message.Type+" "+request.Header.Get("webhook-id"))
		}
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(r.answer)
	}))
	t.Cleanup(func() {
		r.Close()
		for _, err := range r.faults {
			t.Error(err)
		}
	})
	return r
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = status
}

func (r *receiver) verify(t *testing.T, secret string) {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

func (r *receiver) received() (calls int, got []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls, slices.Clone(r.got)
}

// An alert sends one signed message at its start and one at its end, for any number of
// evaluating nodes, also if the evaluating node stops.
func TestOneMessageForEachChange(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(r.URL)
	r.verify(t, c.Secret)
	s.rule(c.ID)
	a, b := s.evaluator("a"), s.evaluator("b")
	step := func(list ...*alerts.Evaluator) {
		t.Helper()
		for _, e := range list {
			s.evaluate(e)
		}
		s.send()
		s.pass(10 * time.Second)
	}
	s.count(9, 9) // too few requests for a rate
	for range 3 {
		step(a, b)
	}
	s.count(91, 20)
	step(a, b)
	// Node a stops. Its lease ends, and b takes over; the rule was pending meanwhile.
	for range 4 {
		step(b)
	}
	s.count(100, 50)
	step(b)
	if _, got := r.received(); len(got) != 1 || !strings.HasPrefix(got[0], "alert.began ") {
		t.Fatalf("received %q", got)
	}
	open, err := s.service.Incidents(t.Context(), "", alerts.Filter{Open: true})
	s.must(err)
	if len(open) != 1 || open[0].Rule.Name != "Acme is limited" {
		t.Fatalf("incidents %+v", open)
	}
	for range 20 {
		step(a, b)
	}
	if _, got := r.received(); len(got) != 2 || !strings.HasPrefix(got[1], "alert.resolved ") {
		t.Fatalf("received %q", got)
	}
	incidents, err := s.service.Incidents(t.Context(), "", alerts.Filter{})
	s.must(err)
	if len(incidents) != 1 || incidents[0].EndedAt.IsZero() || incidents[0].Peak < 20 {
		t.Errorf("incidents %+v", incidents)
	}
}

// A receiver that fails gets the message again, later each time, and in the end once.
func TestFailingReceiver(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(r.URL)
	r.verify(t, c.Secret)
	r.answers(http.StatusServiceUnavailable)
	_, err := s.service.Test(t.Context(), "", c.ID)
	s.must(err)
	s.send()
	if list := s.deliveries(alerts.Waiting); len(list) != 1 || list[0].Answer != "503 Service Unavailable" {
		t.Fatalf("%+v", list)
	}
	s.send() // not due yet
	if calls, _ := r.received(); calls != 1 {
		t.Errorf("%d attempts before the time", calls)
	}
	s.pass(5 * time.Second)
	s.send()
	r.answers(http.StatusFound) // a redirect is a failure
	s.pass(30 * time.Second)
	s.send()
	if list := s.deliveries(alerts.Waiting); len(list) != 1 || list[0].Attempts != 3 || !strings.Contains(list[0].Answer, "redirect") {
		t.Fatalf("%+v", list)
	}
	r.answers(http.StatusOK)
	s.pass(2 * time.Minute)
	s.send()
	s.pass(24 * time.Hour)
	s.send()
	calls, got := r.received()
	if calls != 4 || len(got) != 1 || got[0] != "alert.test "+s.deliveries(alerts.Delivered)[0].ID {
		t.Errorf("%d attempts, received %q", calls, got)
	}
}

// A message is given up after 24 hours, and can be repeated.
func TestDeadMessages(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(r.URL)
	r.answers(http.StatusInternalServerError)
	began := s.now()
	_, err := s.service.Test(t.Context(), "", c.ID)
	s.must(err)
	for len(s.deliveries(alerts.Waiting)) > 0 {
		s.send()
		for _, d := range s.deliveries(alerts.Waiting) {
			s.pass(d.DueAt.Sub(s.now()))
		}
	}
	took := s.now().Sub(began)
	if took > 24*time.Hour || took < 24*time.Hour*9/10 {
		t.Errorf("given up after %s", took)
	}
	dead := s.deliveries(alerts.Dead)
	if calls, _ := r.received(); calls != 11 || len(dead) != 1 {
		t.Fatalf("%d attempts; dead: %+v", calls, dead)
	}
	r.answers(http.StatusOK)
	_, err = s.service.Repeat(t.Context(), "", dead[0].ID)
	s.must(err)
	s.send()
	if len(s.deliveries(alerts.Delivered)) != 1 {
		t.Error("the repeated message was not delivered")
	}

	r.answers(http.StatusGone)
	_, err = s.service.Test(t.Context(), "", c.ID)
	s.must(err)
	s.send()
	if dead := s.deliveries(alerts.Dead); len(dead) != 1 || dead[0].Attempts != 1 {
		t.Errorf("after 410 Gone: %+v", dead)
	}
}

// The address is checked when the connection is made: a name that resolves to this
// machine gets nothing, and neither the log nor the answer has the path of the address.
func TestPrivateReceiver(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(strings.Replace(r.URL, "127.0.0.1", "localhost", 1) + "/secret-path")
	_, err := s.service.Test(t.Context(), "", c.ID)
	s.must(err)
	var log strings.Builder
	guarded := alerts.NewSender(alerts.SenderConfig{Store: s.Store, Now: s.now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := guarded.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := s.deliveries(alerts.Waiting)
	if calls, _ := r.received(); calls != 0 || len(list) != 1 || !strings.Contains(list[0].Answer, "private") {
		t.Errorf("%d calls, %+v", calls, list)
	}
	if text := fmt.Sprint(list[0].Answer, log.String()); strings.Contains(text, "secret-path") {
		t.Error(text)
	}
}

// await returns what arrives.
func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("nothing arrived")
	}
	return v
}

// While a receiver hangs, other messages are sent, and a node that stops leaves its
// message to the next one.
func TestHangingReceiver(t *testing.T) {
	t.Parallel()
	s, good := newSite(t), newReceiver(t)
	arrived, leave := make(chan struct{}, 2), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	for _, url := range []string{hanging.URL, good.URL} {
		_, err := s.service.Test(t.Context(), "", s.channel(url).ID)
		s.must(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.sender().Send(ctx)
		ended <- err
	}()
	await(t, arrived)
	stop()
	if err := await(t, ended); err != nil {
		t.Error(err)
	}
	s.send() // still claimed
	s.pass(time.Minute)
	again := make(chan error, 1)
	go func() {
		_, err := s.sender().Send(t.Context())
		again <- err
	}()
	await(t, arrived)
	close(leave)
	if err := await(t, again); err != nil {
		t.Error(err)
	}
	if _, got := good.received(); len(got) == 0 {
		t.Error("the other message was not sent")
	}
}

// An attempt of a webhook ends after five seconds, whatever the client allows.
func TestAttemptsHaveADeadline(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.service.Test(t.Context(), "", s.channel("https://hooks.example.com").ID)
	s.must(err)
	var left time.Duration
	sender := alerts.NewSender(alerts.SenderConfig{Store: s.Store, Now: s.now, Client: &http.Client{Transport: transport(
		func(r *http.Request) (*http.Response, error) {
			if deadline, ok := r.Context().Deadline(); ok {
				left = time.Until(deadline)
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		})}})
	_, err = sender.Send(t.Context())
	s.must(err)
	if left <= 0 || left > 5*time.Second {
		t.Errorf("an attempt may take %s, want at most 5 s", left)
	}
	if most := alerts.NewClient(nil).Timeout; most != 5*time.Second {
		t.Errorf("the client allows %s, want 5 s", most)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// A message that the receiver accepted while the node began to stop is not sent again.
func TestAnswerWhileTheNodeStops(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.service.Test(t.Context(), "", s.channel("https://hooks.example.com").ID)
	s.must(err)
	ctx, stop := context.WithCancel(t.Context())
	sent := 0
	sender := alerts.NewSender(alerts.SenderConfig{Store: s.Store, Now: s.now, Client: &http.Client{Transport: transport(
		func(r *http.Request) (*http.Response, error) {
			sent++
			stop()
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		})}})
	_, err = sender.Send(ctx)
	s.must(err)
	s.pass(2 * time.Minute)
	_, err = sender.Send(t.Context())
	s.must(err)
	if sent != 1 || len(s.deliveries(alerts.Delivered)) != 1 {
		t.Errorf("sent %d times, %d delivered", sent, len(s.deliveries(alerts.Delivered)))
	}
}

// A muted rule has incidents, and sends nothing.
func TestMuted(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(r.URL)
	rule := s.rule(c.ID)
	d := rule.Document
	d.MutedUntil, d.For = s.now().Add(time.Hour), 0
	_, err := s.service.ChangeRule(t.Context(), "", rule.ID, rule.Version, d)
	s.must(err)
	s.count(100, 50)
	s.evaluate(s.evaluator("a"))
	s.send()
	incidents, err := s.service.Incidents(t.Context(), "", alerts.Filter{})
	s.must(err)
	if calls, _ := r.received(); calls != 0 || len(incidents) != 1 {
		t.Errorf("%d calls, %d incidents", calls, len(incidents))
	}
}

// A figure that cannot be measured leaves the phase, and the rule says why.
func TestUnknownFigure(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r, err := s.service.CreateRule(t.Context(), "", alerts.Document{
		Name: "a", Metric: alerts.Denials, Tenant: "gone", Window: time.Minute, Threshold: 1,
	})
	s.must(err)
	s.evaluate(s.evaluator("a"))
	w, err := s.service.Rule(t.Context(), "", r.ID)
	s.must(err)
	if w.State.Err != "the tenant does not exist" || w.State.Phase != "" {
		t.Errorf("%+v", w.State)
	}
	if _, err := s.service.CreateRule(t.Context(), "", alerts.Document{Name: "a", Metric: alerts.SilentNodes, Threshold: 1, Channels: []string{"x"}}); problem.Of(err) != problem.Invalid {
		t.Errorf("a rule with an unknown channel: %v", err)
	}
}
