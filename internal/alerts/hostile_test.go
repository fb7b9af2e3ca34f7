package alerts_test

import (
	"testing"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/servertest"
)

// mostHostile is more than a sender may read of an answer, with the buffers of the connection.
const mostHostile = 32 << 20

// Receivers with hostile answers end their attempts, hold up no other message, and take a bounded part of the
// memory. What an operator sees of an answer is short.
func TestHostileReceivers(t *testing.T) {
	t.Parallel()
	servers := servertest.StartHostileHTTP(t)
	if len(servers) < 20 {
		t.Fatalf("%d servers", len(servers))
	}
	s := newSite(t)
	for _, h := range servers {
		_, err := s.service.Test(t.Context(), "", s.channel(h.URL).ID)
		s.must(err)
	}
	for range 2 { // a sender makes 16 attempts at once
		s.send()
	}
	waiting, delivered := s.deliveries(alerts.Waiting), s.deliveries(alerts.Delivered)
	if len(waiting)+len(delivered) != len(servers) {
		t.Errorf("%d messages wait and %d are delivered, of %d", len(waiting), len(delivered), len(servers))
	}
	for _, d := range append(waiting, delivered...) {
		if d.Attempts != 1 || d.Answer == "" || len(d.Answer) > 500 {
			t.Errorf("%d attempts, answer %.600q", d.Attempts, d.Answer)
		}
	}
	for _, h := range servers {
		if n := h.Sent(); n > mostHostile {
			t.Errorf("%s: %d bytes of the answer were read", h.Name, n)
		}
	}
}
