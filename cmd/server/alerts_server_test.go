//go:build !quick

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// A hook receives the messages of alerts and verifies their signatures.
type hook struct {
	*httptest.Server
	mu       sync.Mutex
	secret   string
	messages []string // event, name of the rule, and webhook-id
	faults   []string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		var message struct {
			Type string
			Data struct{ Name string }
		}
		verifier, err := standardwebhooks.NewWebhook(h.secret)
		if err == nil {
			err = verifier.Verify(body, r.Header)
		}
		if err == nil {
			err = json.Unmarshal(body, &message)
		}
		if err != nil {
			h.faults = append(h.faults, err.Error())
		}
		h.messages = append(h.messages, message.Type+" "+message.Data.Name+" "+r.Header.Get("webhook-id"))
	}))
	t.Cleanup(func() {
		h.Close()
		if len(h.faults) > 0 {
			t.Error(h.faults)
		}
	})
	return h
}

func (h *hook) received(prefix string) (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		if strings.HasPrefix(m, prefix) {
			list = append(list, m)
		}
	}
	return list
}

// One of three nodes evaluates the alert rules. When it is killed, another node evaluates the
// next alert. Each alert sends one message.
func TestAlertsSurviveTheirNode(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, map[string]string{"HEADGATE_WEBHOOK_NETWORKS": "127.0.0.0/8"})
	h := newHook(t)
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 1, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	origin := f.nodes[0].origin
	var made struct {
		Secret  string
		Channel struct{ ID string }
	}
	a := call(t, bootstrap, "POST", origin+"/v1/alert-channels", fmt.Sprintf(`{"name": "on call", "kind": "webhook", "url": %q}`, h.URL)).want(t, 201)
	if err := json.Unmarshal([]byte(a.body), &made); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.secret = made.Secret
	h.mu.Unlock()
	rule := func(origin, name string) {
		t.Helper()
		call(t, bootstrap, "POST", origin+"/v1/alert-rules", fmt.Sprintf(
			`{"name": %q, "metric": "denials", "tenant": "acme", "window": "1h", "threshold": 1, "channels": [%q]}`, name, made.Channel.ID)).want(t, 201)
	}
	for range 2 { // the second one is denied
		call(t, bootstrap, "POST", origin+"/v1/check", `{"tenant": "acme"}`)
	}
	rule(origin, "first")
	eventually(t, "the first alert begins", func() bool { return len(h.received("alert.began first ")) > 0 })

	evaluates := slices.IndexFunc(f.nodes, func(p *process) bool {
		return strings.Contains(p.logs.String(), `"msg":"alert rules: evaluation on this node","begins":true`)
	})
	if evaluates < 0 {
		t.Fatal("no node says that it evaluates")
	}
	killed := f.nodes[evaluates]
	if err := killed.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-killed.ended
	other := f.nodes[(evaluates+1)%3]
	rule(other.origin, "second")
	eventually(t, "the second alert begins on another node", func() bool { return len(h.received("alert.began second ")) > 0 })

	call(t, bootstrap, "POST", other.origin+"/v1/alert-channels/"+made.Channel.ID+"/test", "").want(t, 202)
	eventually(t, "the test message arrives", func() bool { return len(h.received("alert.test ")) == 1 })
	for _, alert := range []string{"first", "second"} {
		if list := h.received("alert.began " + alert); len(list) != 1 {
			t.Errorf("received %q", list)
		}
	}
	eventually(t, "all messages are delivered", func() bool {
		list := call(t, bootstrap, "GET", other.origin+"/v1/alert-deliveries?status=delivered", "").want(t, 200)
		return strings.Count(list.body, `"event":"`) == 3
	})
	call(t, bootstrap, "GET", other.origin+"/v1/alerts?open=true", "").want(t, 200)
}
