package web

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/a-h/templ"
)

// A carriage return in a text begins no event of its own.
func TestReturnsInStreams(t *testing.T) {
	t.Parallel()
	to := httptest.NewRecorder()
	s := &sender{to: to, control: http.NewResponseController(to), sent: map[string][sha256.Size]byte{}}
	_, err := s.send(t.Context(), Fragment{"list", templ.Raw("a\rdata: b\r\revent: other\r\nc\n\rid: 7")})
	must(t, err)
	if got, want := to.Body.String(), "event: list\ndata: a\ndata: data: b\ndata: \ndata: event: other\ndata: c\ndata: \ndata: id: 7\n\n"; got != want {
		t.Errorf("%q", got)
	}
}

// One person has a bounded number of streams, and others are not affected.
func TestStreamsArePerPerson(t *testing.T) {
	t.Parallel()
	var s streams
	var last func()
	for range maxOwnStreams {
		leave, ok := s.enter("u1")
		if !ok {
			t.Fatal("there are too few")
		}
		last = leave
	}
	if _, ok := s.enter("u1"); ok {
		t.Error("there is one too many")
	}
	if _, ok := s.enter("u2"); !ok {
		t.Error("another person has none")
	}
	last()
	if _, ok := s.enter("u1"); !ok {
		t.Error("one that ended is counted")
	}
}
