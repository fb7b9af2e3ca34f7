package web

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/headgate/headgate/internal/accounts"
)

// A carriage return in a text does not start a new event.
func TestReturnsInStreams(t *testing.T) {
	t.Parallel()
	if got, want := eventText("list", "a\rdata: b\r\revent: other\r\nc\n\rid: 7"), "event: list\ndata: a\ndata: data: b\ndata: \ndata: event: other\ndata: c\ndata: \ndata: id: 7\n\n"; got != want {
		t.Errorf("%q", got)
	}
}

// The number of streams is bounded for each person, for the members of each tenant, and for the
// members of all tenants together. Some streams are reserved for users of the operator.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	var s streams
	enter := func(n int, user, tenant string) (entered int, last func()) {
		for range n {
			leave, ok := s.enter(accounts.User{ID: user, TenantID: tenant})
			if !ok {
				break
			}
			entered, last = entered+1, leave
		}
		return entered, last
	}
	n, leave := enter(maxStreams, "u1", "t1")
	if n != maxOwnStreams {
		t.Errorf("a person has %d", n)
	}
	leave()
	if n, _ = enter(maxStreams, "u1", "t1"); n != 1 {
		t.Errorf("after one ended, a person gets %d", n)
	}
	tenant := maxOwnStreams
	for i := range 26 {
		n, _ = enter(maxOwnStreams, "m"+strconv.Itoa(i), "t1")
		tenant += n
	}
	if tenant != maxPartyStreams {
		t.Errorf("a tenant has %d", tenant)
	}
	all := tenant
	for i := range 100 {
		n, _ = enter(maxOwnStreams, "n"+strconv.Itoa(i), "t"+strconv.Itoa(10+i))
		all += n
	}
	if all != maxTenantStreams {
		t.Errorf("all tenants have %d", all)
	}
	for i := range 100 {
		n, _ = enter(maxOwnStreams, "o"+strconv.Itoa(i), "")
		all += n
	}
	if all != maxStreams {
		t.Errorf("the node has %d", all)
	}
}

// Streams of the same page share the rendered parts. A new stream starts with the last rendered
// parts. If the stream that renders ends or is slow, another one renders.
func TestOneDrawing(t *testing.T) {
	t.Parallel()
	var s streams
	a, b, other := s.view("a"), s.view("a"), s.view("b")
	must := func(got, want bool, what string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	publish := func(v *viewer, event, text string) {
		t.Helper()
		if err := v.publish(context.Background(), Fragment{event, templ.Raw(text)}); err != nil {
			t.Fatal(err)
		}
	}
	news := func(v *viewer, want string) {
		t.Helper()
		if got, _ := v.news(); got != want {
			t.Errorf("news are %q, want %q", got, want)
		}
	}
	const every = time.Hour
	must(a.due(every), true, "the first draws")
	must(b.due(every), false, "the second draws")
	must(other.due(every), true, "another page draws")
	_, changed := b.news()
	publish(a, "x", "1")
	publish(a, "y", "1")
	publish(a, "x", "2")
	publish(a, "x", "2")
	a.drawn()
	<-changed
	const both = "event: y\ndata: 1\n\nevent: x\ndata: 2\n\n"
	news(a, both)
	news(b, both)
	news(b, "")
	news(s.view("a"), both)
	news(other, "")
	must(a.due(every), true, "the first draws again")
	must(b.due(0), false, "two draw at once")
	a.drawn()
	must(b.due(0), true, "another draws for a late one")
	b.drawn()
	must(a.due(every), false, "two draw in turn")
	s.unview(b)
	must(a.due(every), true, "one draws for one that left")
	s.unview(a)
	s.unview(other)
	if len(s.drawings) != 1 {
		t.Errorf("%d drawings are kept", len(s.drawings))
	}
}
