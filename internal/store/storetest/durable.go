package storetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/tenants"
)

// durableTests test the states of durable counters.
var durableTests = []struct {
	name string
	run  func(*suite)
}{
	{"states of durable counters are replaced by later ones", testDurableReplace},
	{"states of durable counters are read in pages, of one home", testDurablePages},
	{"states of durable counters end with their tenant", testDurableTenant},
	{"states of durable counters that have ended are deleted", testDurablePruned},
}

// durable returns the state of a counter of a tenant with a units, read at a time in
// seconds from now.
func (s *suite) durable(t tenants.Tenant, part byte, a int64, at, ends time.Duration) enforcement.Stored {
	now := s.Clock.Now()
	return enforcement.Stored{
		Key: enforcement.Key{Tenant: t.Number, Cell: 7, Partition: [16]byte{part, 1}}, Algorithm: enforcement.FixedWindow,
		State: enforcement.State{Rev: 3, A: a, B: 2, T: now.UnixMicro()},
		At:    now.Add(at).UnixMicro(), Ends: now.Add(ends).UnixMicro(), Home: t.Home,
	}
}

func (s *suite) journal(home string) []enforcement.Stored {
	s.Helper()
	list, err := s.Other.ReadJournal(s.ctx, home, enforcement.Key{}, 100)
	s.must(err)
	return list
}

func testDurableReplace(s *suite) {
	t := s.tenant("acme", "")
	before := s.revision()
	first := s.durable(t, 1, 10, 0, time.Hour)
	later := s.durable(t, 1, 15, time.Second, 2*time.Hour)
	same := s.durable(t, 1, 16, time.Second, 2*time.Hour)
	reset := s.durable(t, 1, 0, 2*time.Second, time.Hour)
	reset.State = enforcement.State{}
	bucket := s.durable(t, 2, -5, 0, time.Hour)
	bucket.Algorithm = enforcement.GCRA
	for _, step := range []struct {
		write enforcement.Stored
		want  enforcement.Stored
	}{{first, first}, {later, later}, {first, later}, {same, same}, {reset, reset}, {same, reset}} {
		s.must(s.Store.WriteJournal(s.ctx, []enforcement.Stored{step.write, bucket}))
		s.same("the states", s.journal(""), []enforcement.Stored{step.want, bucket})
	}
	if now := s.revision(); now != before {
		s.Errorf("revision %d, was %d", now, before)
	}
}

func testDurablePages(s *suite) {
	one, two := s.tenant("one", ""), s.tenant("two", "")
	var all []enforcement.Stored
	for _, t := range []tenants.Tenant{one, two} {
		for part := range byte(40) {
			all = append(all, s.durable(t, part, int64(part), 0, time.Hour))
		}
	}
	s.must(s.Store.WriteJournal(s.ctx, all))
	var read []enforcement.Stored
	for after := (enforcement.Key{}); ; {
		list, err := s.Store.ReadJournal(s.ctx, "", after, 7)
		s.must(err)
		if len(list) == 0 {
			break
		}
		read, after = append(read, list...), list[len(list)-1].Key
	}
	s.same("the pages", read, all)
	if one.Home == two.Home {
		s.Fatal("both tenants have one home")
	}
	s.same("the states of a home", s.journal(two.Home), all[40:])
}

func testDurableTenant(s *suite) {
	one, two := s.tenant("one", ""), s.tenant("two", "")
	both := []enforcement.Stored{s.durable(one, 1, 1, 0, time.Hour), s.durable(two, 1, 1, 0, time.Hour)}
	s.must(s.Store.WriteJournal(s.ctx, both))
	s.must(s.Store.DeleteTenant(s.ctx, one.ID, one.Revision, entry("tenant.delete")))
	s.same("the states", s.journal(""), both[1:])
	later := slices.Clone(both)
	for i := range later {
		later[i].At++
	}
	s.must(s.Store.WriteJournal(s.ctx, later))
	s.same("the states", s.journal(""), later[1:])
	if err := s.Exec(`INSERT INTO durable_states SELECT * FROM durable_states WHERE tenant = ` + strconv.Itoa(int(one.Number))); err != nil {
		s.Error("the states of a deleted tenant are still there")
	}
}

func testDurablePruned(s *suite) {
	t := s.tenant("acme", "")
	short, long := s.durable(t, 1, 1, 0, time.Minute), s.durable(t, 2, 1, 0, 3*time.Hour)
	s.must(s.Store.WriteJournal(s.ctx, []enforcement.Stored{short, long}))
	s.prune(metrics.Retention{})
	s.same("the states", s.journal(""), []enforcement.Stored{short, long})
	s.Clock.Add(time.Hour + 2*time.Minute)
	s.same("the states that may be in use", s.journal(""), []enforcement.Stored{long})
	s.prune(metrics.Retention{})
	twice := `INSERT INTO durable_states SELECT * FROM durable_states WHERE ends_us < ` + strconv.FormatInt(s.Clock.Now().UnixMicro(), 10)
	s.must(s.Exec(twice)) // fails if the table has a row
	s.same("the states", s.journal(""), []enforcement.Stored{long})
}
