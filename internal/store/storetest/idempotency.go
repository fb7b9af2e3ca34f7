package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// onceTests test the stored responses to requests with an Idempotency-Key.
var onceTests = []struct {
	name string
	run  func(*suite)
}{
	{"a request with an Idempotency-Key is answered once", testOnce},
	{"an answer is stored with its edit, or neither is", testOnceFails},
	{"requests with one Idempotency-Key at the same time make one edit", testOnceAtOnce},
	{"answers to requests are deleted after a day", testOncePruned},
}

// creating returns an answer function that creates a tenant on st.
func (s *suite) creating(st Store, slug, answer string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		t := tenants.Tenant{Slug: slug, Document: tenantDocument(slug, "")}
		_, err := st.CreateTenant(ctx, t, entry("tenant.create"))
		return []byte(answer), err
	}
}

func (s *suite) wantOnce(id, body [32]byte, answer func(context.Context) ([]byte, error), want string, repeated bool) {
	s.Helper()
	got, is, err := s.Store.Once(s.ctx, id, body, answer)
	if err != nil || string(got) != want || is != repeated {
		s.Errorf("answer %q, repeated %v, error %v; want %q, %v", got, is, err, want, repeated)
	}
}

func testOnce(s *suite) {
	id, body := [32]byte{1}, [32]byte{2}
	s.wantOnce(id, body, s.creating(s.Store, "one", "first"), "first", false)
	made := s.revision()
	s.Clock.Add(23 * time.Hour)
	s.wantOnce(id, body, s.creating(s.Store, "two", "second"), "first", true)
	if now := s.revision(); now != made {
		s.Errorf("revision %d, was %d", now, made)
	}
	_, _, err := s.Store.Once(s.ctx, id, [32]byte{3}, s.creating(s.Store, "two", "second"))
	s.wantKind(err, problem.Conflict, "idempotency_key_reused")
	s.wantOnce([32]byte{4}, body, s.creating(s.Store, "two", "second"), "second", false)
	s.Clock.Add(time.Hour)
	s.wantOnce(id, [32]byte{3}, s.creating(s.Store, "three", "third"), "third", false)
	s.wantOnce(id, [32]byte{3}, s.creating(s.Store, "four", "fourth"), "third", true)
	for slug, want := range map[string]bool{"one": true, "two": true, "three": true, "four": false} {
		if _, err := s.Store.Tenant(s.ctx, slug); (err == nil) != want {
			s.Errorf("tenant %s: %v", slug, err)
		}
	}
}

func testOnceFails(s *suite) {
	id, body := [32]byte{1}, [32]byte{2}
	before, broken := s.revision(), errors.New("broken")
	_, _, err := s.Store.Once(s.ctx, id, body, func(ctx context.Context) ([]byte, error) {
		_, err := s.creating(s.Store, "one", "")(ctx)
		s.must(err)
		return nil, broken
	})
	if !errors.Is(err, broken) {
		s.Errorf("%v", err)
	}
	if now := s.revision(); now != before {
		s.Errorf("revision %d, was %d", now, before)
	}
	for _, text := range []string{"a", "b"} { // without an edit, nothing is stored
		s.wantOnce(id, body, func(context.Context) ([]byte, error) { return []byte(text), nil }, text, false)
	}
	s.tenant("taken", "")
	_, _, err = s.Store.Once(s.ctx, id, body, s.creating(s.Store, "taken", ""))
	s.wantKind(err, problem.Conflict, "slug_taken")
	s.wantOnce(id, body, s.creating(s.Store, "one", "first"), "first", false)
	s.wantOnce(id, body, s.creating(s.Store, "one", "second"), "first", true)
}

func testOnceAtOnce(s *suite) {
	stores := []Store{s.Store, s.Other, s.Store, s.Other}
	answers := make([]string, len(stores))
	var all sync.WaitGroup
	for i, st := range stores {
		all.Go(func() {
			answer, _, err := st.Once(s.ctx, [32]byte{1}, [32]byte{2}, s.creating(st, "one", string(rune('a'+i))))
			if answers[i] = string(answer); err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
	for _, a := range answers {
		if a == "" || a != answers[0] {
			s.Errorf("answers %q", answers)
		}
	}
}

func testOncePruned(s *suite) {
	s.wantOnce([32]byte{1}, [32]byte{2}, s.creating(s.Store, "one", "first"), "first", false)
	const twice = `INSERT INTO idempotent_answers SELECT id, body, answer, at FROM idempotent_answers` // fails if the table has a row
	s.prune(metrics.Retention{})
	if err := s.Exec(twice); err == nil {
		s.Error("a new answer is deleted")
	}
	s.Clock.Add(24*time.Hour + time.Second)
	s.prune(metrics.Retention{})
	s.must(s.Exec(twice))
}
