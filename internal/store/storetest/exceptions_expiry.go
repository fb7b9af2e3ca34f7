package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/snapshot"
)

func testEndExpired(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	start := s.Clock.stored()
	until := func(d time.Duration) time.Time { return start.Add(d) }
	o := s.newOverride(acme.ID, "all")
	o.ExpiresAt = until(time.Hour)
	ends := s.override(o)
	o.TenantID, o.Policy, o.ExpiresAt = other.ID, "login", until(2*time.Hour)
	later := s.override(o)
	n := s.newListed(acme.ID, "u1")
	n.ExpiresAt = until(time.Hour)
	listed, stays := s.listed(n), s.listed(s.newListed(acme.ID, "for ever"))
	b := s.newBlock(acme.ID, "all")
	b.ExpiresAt = until(time.Hour + time.Microsecond)
	blocked := s.block(b)

	before := s.revision()
	end := func(now time.Time, limit, want int) {
		s.Helper()
		if n, err := s.Store.EndExpired(s.ctx, now, limit); err != nil || n != want {
			s.Fatalf("%d ended, error %v; want %d", n, err, want)
		}
	}
	end(until(time.Hour-time.Microsecond), 10, 0)
	if s.revision() != before {
		s.Errorf("nothing ended, and the revision rose from %d to %d", before, s.revision())
	}
	end(until(time.Hour), 10, 2) // an exception is no longer valid at its end
	at := s.revision()
	s.same("changes", s.since(before), snapshot.Changes{
		Revision: before + 1, PolicyChanges: []exceptions.Change{{TenantID: acme.ID, Policy: "all", Revision: at}},
		Removed: []snapshot.Tombstone{{Kind: "list_entry", ID: listed.ID}, {Kind: "override", ID: ends.ID}},
	})
	s.same("lines", s.actions(at), []string{"list_entry.expire " + listed.ID, "override.expire " + ends.ID})
	document, err := ends.JSON()
	s.must(err)
	want := audit.Entry{
		At: s.Clock.stored(), Revision: at, Actor: audit.Actor{Kind: "system", ID: "system", Name: "system"}, TenantID: acme.ID,
		Action: "override.expire", Object: ends.ID, ObjectName: "all", Before: document,
	}
	line := s.lines(audit.Filter{Action: "override.expire"})[0]
	want.ID, want.Seq, want.Hash = line.ID, line.Seq, line.Hash
	s.same("the line of the override", line, want)

	s.Clock.Add(72 * time.Hour)
	end(s.Clock.Now(), 1, 1)
	end(s.Clock.Now(), 1, 1)
	end(s.Clock.Now(), 1, 0)
	for _, id := range []string{later.ID, blocked.ID} {
		if got := s.lines(audit.Filter{Object: id}); len(got) != 2 || !strings.HasSuffix(got[0].Action, ".expire") {
			s.Errorf("lines of %s: %+v", id, got)
		}
	}
	s.same("what is left", s.world().Entries, []exceptions.Entry{stays})
}

// Several nodes find at the same time that the same rows have expired.
func testEndExpiredAtOnce(s *suite) {
	const rows, nodes = 24, 4
	acme := s.tenant("acme", "")
	for i := range rows / 3 {
		s.override(s.newOverride(acme.ID, fmt.Sprint("p", i)))
		s.block(s.newBlock(acme.ID, "all"))
		n := s.newListed(acme.ID, fmt.Sprint("u", i))
		n.ExpiresAt = s.Clock.Now().Add(time.Hour)
		s.listed(n)
	}
	s.Clock.Add(48 * time.Hour)
	before := s.revision()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ended, edits := 0, 0
	for node := range nodes {
		at := s.Store
		if node%2 == 1 {
			at = s.Other
		}
		wg.Go(func() {
			for {
				n, err := at.EndExpired(s.ctx, s.Clock.Now(), 5)
				if err != nil {
					s.Errorf("node %d: %v", node, err)
					return
				}
				if n == 0 {
					return
				}
				mu.Lock()
				ended, edits = ended+n, edits+1
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if ended != rows || s.revision() != before+int64(edits) {
		s.Errorf("%d rows ended in %d edits, the revision rose by %d; want %d rows", ended, edits, s.revision()-before, rows)
	}
	lines := make(map[string]int)
	for _, l := range s.lines(audit.Filter{Limit: 1000}) {
		if strings.HasSuffix(l.Action, ".expire") {
			lines[l.Object]++
		}
	}
	if len(lines) != rows || len(s.since(before).Removed) != rows {
		s.Errorf("%d objects have lines, %d tombstones; want %d of each", len(lines), len(s.since(before).Removed), rows)
	}
	for id, n := range lines {
		if n != 1 {
			s.Errorf("%s has %d lines", id, n)
		}
	}
}
