package accounts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
)

// refusedLine holds the members of a line of access.refused.
type refusedLine struct {
	Action, Route, Tenant string
	Count                 int
}

func (h *house) refused() (lines []audit.Entry, said []refusedLine) {
	h.t.Helper()
	for _, e := range h.lines() {
		if e.Action != "access.refused" {
			continue
		}
		var l refusedLine
		h.must(json.Unmarshal(e.After, &l))
		lines, said = append(lines, e), append(said, l)
	}
	return lines, said
}

func TestEqualDenialsAreOneLine(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := accounts.NewDeniedAccessLog(h.store, accounts.DeniedAccessConfig{})
	ann := accounts.Principal{Kind: "user", ID: "ann", Name: "ann@example.com", TenantID: h.tenant.ID}
	key := accounts.Principal{Kind: "operator_key", ID: "k1", Name: "console"}
	from := audit.With(t.Context(), audit.Actor{}, audit.Origin{RequestID: "first", Address: "192.0.2.7"})
	r.Note(from, ann, accounts.PeopleRead, "/people", "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 125 {
				r.Note(t.Context(), ann, accounts.PeopleRead, "/people", "")
				r.Note(t.Context(), key, accounts.Check, "/v1/check", "ev\nil"+strings.Repeat("x", 500))
				r.Note(t.Context(), accounts.Principal{}, accounts.Check, "/v1/check", "") // nobody
			}
		})
	}
	wg.Wait()
	if lines, _ := h.refused(); len(lines) != 0 {
		t.Error("a note went to the store")
	}
	h.must(r.Flush(t.Context()))
	h.must(r.Flush(t.Context())) // nothing is left
	lines, said := h.refused()
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	for i, e := range lines {
		switch e.Actor.ID {
		case "ann":
			want := refusedLine{Action: "people.read", Route: "/people", Count: 1001}
			if said[i] != want || e.TenantID != h.tenant.ID || e.Origin.Address != "192.0.2.7" || e.Actor.Kind != "user" {
				t.Errorf("line %+v says %+v", e, said[i])
			}
		case "k1":
			if said[i].Count != 1000 || strings.Contains(said[i].Tenant, "\n") || len(said[i].Tenant) > 260 || e.TenantID != "" {
				t.Errorf("line %+v says %+v", e, said[i])
			}
		default:
			t.Errorf("line %+v", e)
		}
	}
}

// A caller that names one foreign tenant after the other does not fill the log, and the
// denials of others are still logged.
func TestOneDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := accounts.NewDeniedAccessLog(h.store, accounts.DeniedAccessConfig{Most: 30})
	eve := accounts.Principal{Kind: "user", ID: "eve", Name: "eve@example.com"}
	ann := accounts.Principal{Kind: "user", ID: "ann", Name: "ann@example.com"}
	for i := range 500 {
		r.Note(t.Context(), eve, accounts.MembersRead, "/tenants/:tenant/members", fmt.Sprint("t", i))
	}
	r.Note(t.Context(), ann, accounts.PeopleRead, "/people", "")
	h.must(r.Flush(t.Context()))
	lines, said := h.refused()
	named, counts := 0, map[string]int{}
	for i := range said {
		counts[lines[i].Actor.ID] += said[i].Count
		if said[i].Tenant != "" {
			named++
		}
	}
	if named != 10 || len(lines) != 12 || counts["eve"] != 500 || counts["ann"] != 1 {
		t.Errorf("%d lines, %d name a tenant, denials by actor %v", len(lines), named, counts)
	}
}

func TestDenialsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := accounts.NewDeniedAccessLog(h.store, accounts.DeniedAccessConfig{Most: 10})
	for i := range 500 {
		key := accounts.Principal{Kind: "tenant_key", ID: fmt.Sprint("k", i)}
		r.Note(t.Context(), key, accounts.Check, "/v1/check", "other")
	}
	h.must(r.Flush(t.Context()))
	lines, said := h.refused()
	total, rest := 0, 0
	for i := range said {
		total += said[i].Count
		if lines[i].Actor.Kind == "system" {
			rest = said[i].Count
		}
	}
	if len(lines) != 11 || total != 500 || rest != 490 {
		t.Errorf("%d lines for %d denials, %d of them in the one of the rest", len(lines), total, rest)
	}
}

// awayStore cannot write lines while away is set.
type awayStore struct {
	accounts.PeopleStore
	away atomic.Bool
}

func (s *awayStore) WriteAudit(ctx context.Context, e audit.Entry) error {
	if s.away.Load() {
		return errors.New("away")
	}
	return s.PeopleStore.WriteAudit(ctx, e)
}

func TestDenialsWaitForTheStore(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	st := &awayStore{PeopleStore: h.store}
	st.away.Store(true)
	r := accounts.NewDeniedAccessLog(st, accounts.DeniedAccessConfig{Most: 2, Interval: time.Hour})
	note := func() {
		for i := range 3 {
			r.Note(t.Context(), accounts.Principal{Kind: "user", ID: fmt.Sprint("u", i), Name: "u"}, accounts.PeopleRead, "/people", "")
		}
	}
	for range 3 {
		note()
		if err := r.Flush(t.Context()); err == nil {
			t.Error("a store that is away took lines")
		}
	}
	st.away.Store(false)
	// The last ones are written when the program ends.
	ctx, stop := context.WithCancel(t.Context())
	stop()
	h.must(r.Run(ctx))
	_, said := h.refused()
	total := 0
	for _, l := range said {
		total += l.Count
	}
	if len(said) != 3 || total != 9 {
		t.Errorf("%d lines for %d denials, want 3 and 9", len(said), total)
	}
}
