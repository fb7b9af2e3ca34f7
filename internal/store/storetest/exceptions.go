package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
)

const nobody = "01900000-0000-7000-8000-000000000000"

// newOverride doubles a policy for a day.
func (s *suite) newOverride(tenantID, policy string) exceptions.Override {
	return exceptions.Override{
		TenantID: tenantID, Policy: policy, Factor: 2_000, Reason: "a busy day",
		ExpiresAt: s.Clock.Now().Add(24 * time.Hour), CreatedBy: entry("").Actor,
	}
}

func (s *suite) override(o exceptions.Override) exceptions.Override {
	s.Helper()
	o, err := s.Store.CreateOverride(s.ctx, o, entry("override.create"))
	s.must(err)
	return o
}

// newListed returns an entry of the deny list that never ends.
func (s *suite) newListed(tenantID, value string) exceptions.Entry {
	return exceptions.Entry{TenantID: tenantID, List: exceptions.Deny, Attribute: "user", Value: value, CreatedBy: entry("").Actor}
}

func (s *suite) listed(n exceptions.Entry) exceptions.Entry {
	s.Helper()
	n, err := s.Store.CreateEntry(s.ctx, n, entry("list_entry.create"))
	s.must(err)
	return n
}

// newBlock blocks a user for a day.
func (s *suite) newBlock(tenantID, policy string) exceptions.Block {
	return exceptions.Block{
		TenantID: tenantID, Policy: policy, Key: map[string]string{"user": "u1"}, Reason: "floods",
		ExpiresAt: s.Clock.Now().Add(24 * time.Hour), CreatedBy: entry("").Actor,
	}
}

func (s *suite) block(b exceptions.Block) exceptions.Block {
	s.Helper()
	b, err := s.Store.CreateBlock(s.ctx, b, entry("block.create"))
	s.must(err)
	return b
}

func overrideID(o exceptions.Override) string { return o.ID }
func listedID(n exceptions.Entry) string      { return n.ID }
func blockID(b exceptions.Block) string       { return b.ID }

// last returns the newest audit line.
func (s *suite) last() audit.Entry {
	s.Helper()
	return s.lines(audit.Filter{Limit: 1})[0]
}

func testOverrideLife(s *suite) {
	acme := s.tenant("acme", "")
	all := s.newOverride(acme.ID, "all")
	made := s.override(all)
	want := all
	want.ID, want.Revision, want.CreatedAt = made.ID, s.revision(), s.Clock.stored()
	want.ExpiresAt = want.ExpiresAt.UTC().Truncate(time.Microsecond)
	s.same("made", made, want)
	if l := s.last(); len(made.ID) != 36 || l.Object != made.ID || l.TenantID != acme.ID || l.ObjectName != "all" {
		s.Errorf("id %q, line %+v", made.ID, l)
	}
	got, err := s.Store.Override(s.ctx, acme.ID, made.ID)
	s.must(err)
	s.same("read", got, want)
	s.same("changes", s.world().PolicyChanges, []exceptions.Change{{TenantID: acme.ID, Policy: "all", Revision: made.Revision}})

	numbers := s.newOverride(acme.ID, "login")
	numbers.Attribute, numbers.Prefix, numbers.Factor = "ip", "2001:db8::/32", 0
	numbers.Limits = []enforcement.OverrideLimit{
		{Name: "a", Quota: 0, Burst: enforcement.Keep},
		{Name: "b", Quota: enforcement.Keep, Burst: 0, Window: enforcement.MaxWindow},
		{Name: "c", Quota: enforcement.MaxQuota, Burst: enforcement.MaxQuota, Window: time.Millisecond},
	}
	second := s.override(numbers)
	exact := s.newOverride(acme.ID, "all")
	exact.Attribute, exact.Value, exact.Factor = "user", "ü' \\ \x01", enforcement.MaxFactor
	third := s.override(exact)
	for what, want := range map[string]exceptions.Override{"with numbers": second, "of a value": third} {
		got, err := s.Store.Override(s.ctx, acme.ID, want.ID)
		s.must(err)
		s.same(what, got, want)
	}
	s.same("numbers", second.Limits, numbers.Limits)
	for _, test := range []struct {
		what string
		f    exceptions.Filter
		want []string
	}{
		{"all, newest first", exceptions.Filter{}, []string{third.ID, second.ID, made.ID}},
		{"of a policy", exceptions.Filter{Policy: "all"}, []string{third.ID, made.ID}},
		{"of none", exceptions.Filter{Policy: "ALL"}, nil},
		{"a page", exceptions.Filter{Limit: 2}, []string{third.ID, second.ID}},
		{"the next one", exceptions.Filter{Limit: 2, After: second.ID}, []string{made.ID}},
	} {
		list, err := s.Store.Overrides(s.ctx, acme.ID, test.f)
		s.must(err)
		s.same(test.what, ids(list, overrideID), test.want)
	}

	changed := made
	changed.Attribute, changed.Prefix, changed.Factor, changed.Reason = "user", "tester-", 0, "longer"
	changed.Limits, changed.ExpiresAt = numbers.Limits, made.ExpiresAt.Add(time.Hour)
	changed.Policy, changed.CreatedAt = "login", made.CreatedAt.Add(time.Hour) // both stay as they are
	now, err := s.Store.UpdateOverride(s.ctx, changed, made.Revision, entry("override.update"))
	s.must(err)
	want = changed
	want.Policy, want.CreatedAt, want.Revision = made.Policy, made.CreatedAt, s.revision()
	s.same("changed", now, want)
	got, err = s.Store.Override(s.ctx, acme.ID, made.ID)
	s.must(err)
	s.same("changed and read", got, want)
	if l := s.last(); l.Object != made.ID || l.TenantID != acme.ID || l.ObjectName != "all" {
		s.Errorf("the line of the change is %+v", l)
	}
	s.same("rows of the change", s.since(now.Revision-1).PolicyChanges,
		[]exceptions.Change{{TenantID: acme.ID, Policy: "all", Revision: now.Revision}})
	_, err = s.Store.UpdateOverride(s.ctx, changed, made.Revision, entry("override.update"))
	s.wantKind(err, problem.Stale, "")
	changed.TenantID = s.tenant("other", "").ID
	_, err = s.Store.UpdateOverride(s.ctx, changed, now.Revision, entry("override.update"))
	s.wantKind(err, problem.NotFound, "")

	s.must(s.Store.DeleteOverride(s.ctx, acme.ID, made.ID, entry("override.delete")))
	at := s.revision()
	s.same("changes after its end", s.since(at-1), snapshot.Changes{
		Revision:      at,
		PolicyChanges: []exceptions.Change{{TenantID: acme.ID, Policy: "all", Revision: at}},
		Removed:       []snapshot.Tombstone{{Kind: "override", ID: made.ID}},
	})
	s.wantKind(s.Store.DeleteOverride(s.ctx, acme.ID, made.ID, entry("override.delete")), problem.NotFound, "")
	_, err = s.Store.Override(s.ctx, acme.ID, made.ID)
	s.wantKind(err, problem.NotFound, "")
}

func testListLife(s *suite) {
	acme := s.tenant("acme", "")
	n := s.newListed(acme.ID, "Mallory 100%")
	n.Reason, n.ExpiresAt = "a reason", s.Clock.Now().Add(time.Hour)
	denied := s.listed(n)
	want := n
	want.ID, want.Revision, want.CreatedAt = denied.ID, s.revision(), s.Clock.stored()
	want.ExpiresAt = want.ExpiresAt.UTC().Truncate(time.Microsecond)
	s.same("made", denied, want)
	got, err := s.Store.Entry(s.ctx, acme.ID, denied.ID)
	s.must(err)
	s.same("read", got, want)

	// The same value may be on the other list, or have another attribute. Upper and lower case are
	// different.
	other := s.newListed(acme.ID, n.Value)
	other.List = exceptions.Allow
	allowed := s.listed(other)
	other.List, other.Attribute = exceptions.Deny, "account"
	account := s.listed(other)
	small := s.listed(s.newListed(acme.ID, "mallory 100%"))
	_, err = s.Store.CreateEntry(s.ctx, n, entry("list_entry.create"))
	s.wantKind(err, problem.Conflict, "entry_exists")
	if got, err := s.Store.Entry(s.ctx, acme.ID, small.ID); err != nil || !got.ExpiresAt.IsZero() {
		s.Errorf("an entry without an end reads as %+v, %v", got, err)
	}
	for _, test := range []struct {
		what string
		f    exceptions.Filter
		want []string
	}{
		{"all, newest first", exceptions.Filter{}, []string{small.ID, account.ID, allowed.ID, denied.ID}},
		{"a list", exceptions.Filter{List: exceptions.Allow}, []string{allowed.ID}},
		{"part of a value, any case", exceptions.Filter{Query: "ALLORY"}, []string{small.ID, account.ID, allowed.ID, denied.ID}},
		{"a percent sign is itself", exceptions.Filter{Query: "0%%"}, nil},
		{"together", exceptions.Filter{List: exceptions.Deny, Query: "100%", Limit: 1, After: small.ID}, []string{account.ID}},
	} {
		list, err := s.Store.Entries(s.ctx, acme.ID, test.f)
		s.must(err)
		s.same(test.what, ids(list, listedID), test.want)
	}

	s.must(s.Store.DeleteEntry(s.ctx, acme.ID, account.ID, entry("list_entry.delete")))
	s.same("removed", s.since(s.revision()-1).Removed, []snapshot.Tombstone{{Kind: "list_entry", ID: account.ID}})
	s.wantKind(s.Store.DeleteEntry(s.ctx, acme.ID, account.ID, entry("list_entry.delete")), problem.NotFound, "")

	// A new entry replaces an expired one, even if the expired one is not deleted yet.
	s.Clock.Add(2 * time.Hour)
	again := s.listed(s.newListed(acme.ID, n.Value))
	c := s.since(again.Revision - 1)
	s.same("the successor", c.Entries, []exceptions.Entry{again})
	s.same("the one before", c.Removed, []snapshot.Tombstone{{Kind: "list_entry", ID: denied.ID}})
	s.same("lines", s.actions(again.Revision), []string{"list_entry.create " + again.ID, "list_entry.expire " + denied.ID})
}

// actions returns the actions of the lines of one edit, sorted.
func (s *suite) actions(revision int64) []string {
	s.Helper()
	var list []string
	for _, l := range s.lines(audit.Filter{Limit: 1000}) {
		if l.Revision == revision {
			list = append(list, l.Action+" "+l.Object)
		}
	}
	slices.Sort(list)
	return list
}

func testBlockLife(s *suite) {
	acme := s.tenant("acme", "")
	b := s.newBlock(acme.ID, "login")
	b.Key = map[string]string{"user": "<&>\u2028\x01\"", "ip": "2001:db8::1", "ü": strings.Repeat("x", 1024)}
	made := s.block(b)
	want := b
	want.ID, want.Revision, want.CreatedAt = made.ID, s.revision(), s.Clock.stored()
	want.ExpiresAt = want.ExpiresAt.UTC().Truncate(time.Microsecond)
	s.same("made", made, want)
	got, err := s.Store.Block(s.ctx, acme.ID, made.ID)
	s.must(err)
	s.same("read", got, want)
	whole := s.newBlock(acme.ID, "all")
	whole.Key = nil
	keyless := s.block(whole)
	for _, test := range []struct {
		what string
		f    exceptions.Filter
		want []string
	}{
		{"all, newest first", exceptions.Filter{}, []string{keyless.ID, made.ID}},
		{"of a policy", exceptions.Filter{Policy: "login"}, []string{made.ID}},
		{"a page", exceptions.Filter{Limit: 1, After: keyless.ID}, []string{made.ID}},
	} {
		list, err := s.Store.Blocks(s.ctx, acme.ID, test.f)
		s.must(err)
		s.same(test.what, ids(list, blockID), test.want)
	}
	s.must(s.Store.DeleteBlock(s.ctx, acme.ID, made.ID, entry("block.delete")))
	s.same("changes", s.since(s.revision()-1), snapshot.Changes{
		Revision: s.revision(), Removed: []snapshot.Tombstone{{Kind: "block", ID: made.ID}},
	})
	s.wantKind(s.Store.DeleteBlock(s.ctx, acme.ID, made.ID, entry("block.delete")), problem.NotFound, "")
}

func testExceptionsRefusals(s *suite) {
	acme := s.tenant("acme", "")
	before := s.revision()
	override := func(change func(*exceptions.Override)) error {
		o := s.newOverride(acme.ID, "all")
		change(&o)
		_, err := s.Store.CreateOverride(s.ctx, o, entry("override.create"))
		return err
	}
	listed := func(change func(*exceptions.Entry)) error {
		n := s.newListed(acme.ID, "u1")
		change(&n)
		_, err := s.Store.CreateEntry(s.ctx, n, entry("list_entry.create"))
		return err
	}
	block := func(change func(*exceptions.Block)) error {
		b := s.newBlock(acme.ID, "all")
		change(&b)
		_, err := s.Store.CreateBlock(s.ctx, b, entry("block.create"))
		return err
	}
	limits := []enforcement.OverrideLimit{{Name: "l1", Quota: 1, Burst: enforcement.Keep}}
	for _, test := range []struct {
		what string
		err  error
		kind problem.Kind
	}{
		{"an override of nobody", override(func(o *exceptions.Override) { o.TenantID = nobody }), problem.NotFound},
		{"an entry of nobody", listed(func(n *exceptions.Entry) { n.TenantID = nobody }), problem.NotFound},
		{"a block of nobody", block(func(b *exceptions.Block) { b.TenantID = nobody }), problem.NotFound},
		{"a reset of nobody", s.Store.NoteReset(s.ctx, nobody, entry("counter.reset")), problem.NotFound},
		{"factor and limits", override(func(o *exceptions.Override) { o.Limits = limits }), problem.Invalid},
		{"neither", override(func(o *exceptions.Override) { o.Factor = 0 }), problem.Invalid},
		{"a value of no attribute", override(func(o *exceptions.Override) { o.Value = "x" }), problem.Invalid},
		{"an attribute without a value", override(func(o *exceptions.Override) { o.Attribute = "user" }), problem.Invalid},
		{"a factor beyond all bounds", override(func(o *exceptions.Override) { o.Factor = 1_000_001 }), problem.Invalid},
		{"no reason", override(func(o *exceptions.Override) { o.Reason = "" }), problem.Invalid},
		{"a window of half a millisecond", override(func(o *exceptions.Override) {
			o.Factor, o.Limits = 0, []enforcement.OverrideLimit{{Name: "l1", Quota: 1, Burst: 1, Window: time.Millisecond / 2}}
		}), problem.Invalid},
		{"no such list", listed(func(n *exceptions.Entry) { n.List = "grey" }), problem.Invalid},
		{"an empty value", listed(func(n *exceptions.Entry) { n.Value = "" }), problem.Invalid},
		{"a key that is no text", block(func(b *exceptions.Block) { b.Key = map[string]string{"user": "\xff"} }), problem.Invalid},
	} {
		if got := problem.Of(test.err); test.err == nil || got != test.kind {
			s.Errorf("%s: %v, want kind %v", test.what, test.err, test.kind)
		}
	}
	if s.revision() != before || len(s.world().PolicyChanges) != 0 {
		s.Errorf("refusals took the revision from %d to %d", before, s.revision())
	}
}

// many copies a row directly in the database, until there are n more rows.
func (s *suite) many(table, columns, id string, n int, change string) {
	s.Helper()
	s.must(s.Exec(fmt.Sprintf(`
		WITH RECURSIVE copies (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM copies WHERE i < %d)
		INSERT INTO %s (id, %s)
		SELECT substr('00000000-0000-7000-8000-000000000000', 1, 36 - length(CAST(i AS TEXT))) || CAST(i AS TEXT), %s
		FROM %s CROSS JOIN copies WHERE id = $1`, n, table, columns, change, table), id))
}

func testExceptionsBounds(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	const who = `, reason, expires_at, created_at, actor_kind, actor_id, actor_name, revision`
	const override = `tenant_id, policy, attribute, value, prefix, factor, limits` + who
	first := s.override(s.newOverride(acme.ID, "all"))
	s.many("overrides", override, first.ID, exceptions.MaxOverrides-2, override)
	s.override(s.newOverride(acme.ID, "all")) // the last override for which there is room
	_, err := s.Store.CreateOverride(s.ctx, s.newOverride(acme.ID, "all"), entry("override.create"))
	s.wantKind(err, problem.Conflict, "too_many_overrides")

	const block = `tenant_id, policy, key_values` + who
	s.many("blocks", block, s.block(s.newBlock(acme.ID, "all")).ID, exceptions.MaxBlocks-2, block)
	s.block(s.newBlock(acme.ID, "all"))
	_, err = s.Store.CreateBlock(s.ctx, s.newBlock(acme.ID, "all"), entry("block.create"))
	s.wantKind(err, problem.Conflict, "too_many_blocks")

	const listed = `tenant_id, list, attribute, value, search` + who
	n := s.newListed(acme.ID, "u")
	n.ExpiresAt = s.Clock.Now().Add(time.Hour)
	s.many("list_entries", listed, s.listed(n).ID, exceptions.MaxEntries-2, strings.Replace(listed, "value", "value || CAST(i AS TEXT)", 1))
	n.List = exceptions.Allow // both lists count together
	s.listed(n)
	_, err = s.Store.CreateEntry(s.ctx, s.newListed(acme.ID, "one more"), entry("list_entry.create"))
	s.wantKind(err, problem.Conflict, "too_many_entries")

	// The rows of another tenant and expired rows do not count.
	s.override(s.newOverride(other.ID, "all"))
	s.Clock.Add(25 * time.Hour)
	s.override(s.newOverride(acme.ID, "all"))
	s.block(s.newBlock(acme.ID, "all"))
	s.listed(s.newListed(acme.ID, "one more"))
}

func testExceptionsIsolation(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	o, n, b := s.override(s.newOverride(acme.ID, "all")), s.listed(s.newListed(acme.ID, "u1")), s.block(s.newBlock(acme.ID, "all"))
	_, err := s.Store.Override(s.ctx, other.ID, o.ID)
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.Entry(s.ctx, other.ID, n.ID)
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.Block(s.ctx, other.ID, b.ID)
	s.wantKind(err, problem.NotFound, "")
	s.wantKind(s.Store.DeleteOverride(s.ctx, other.ID, o.ID, entry("override.delete")), problem.NotFound, "")
	s.wantKind(s.Store.DeleteEntry(s.ctx, other.ID, n.ID, entry("list_entry.delete")), problem.NotFound, "")
	s.wantKind(s.Store.DeleteBlock(s.ctx, other.ID, b.ID, entry("block.delete")), problem.NotFound, "")
	f := exceptions.Filter{Policy: "all", Query: "u1", After: "ffffffff-ffff-7fff-8fff-ffffffffffff"}
	overrides, err := s.Store.Overrides(s.ctx, other.ID, f)
	s.must(err)
	entries, err := s.Store.Entries(s.ctx, other.ID, f)
	s.must(err)
	blocks, err := s.Store.Blocks(s.ctx, other.ID, f)
	s.must(err)
	if len(overrides)+len(entries)+len(blocks) != 0 {
		s.Errorf("the other tenant sees %v, %v, %v", overrides, entries, blocks)
	}

	// The other tenant may have the same value on its list. Its entry is deleted with this tenant.
	s.listed(s.newListed(other.ID, "u1"))
	s.override(s.newOverride(other.ID, "all"))
	s.block(s.newBlock(other.ID, "all"))
	s.must(s.Store.DeleteTenant(s.ctx, other.ID, other.Revision, entry("tenant.delete")))
	c := s.since(0)
	s.same("overrides", c.Overrides, []exceptions.Override{o})
	s.same("entries", c.Entries, []exceptions.Entry{n})
	s.same("blocks", c.Blocks, []exceptions.Block{b})
	s.same("policy changes", c.PolicyChanges, []exceptions.Change{{TenantID: acme.ID, Policy: "all", Revision: o.Revision}})
	// The tombstone of the tenant stands for all its exceptions.
	s.same("removed", s.since(s.revision()-1).Removed, []snapshot.Tombstone{{Kind: "tenant", ID: other.ID}})
}

func testExceptionsChanges(s *suite) {
	acme := s.tenant("acme", "")
	before := s.revision()
	o, n, b := s.override(s.newOverride(acme.ID, "all")), s.listed(s.newListed(acme.ID, "u1")), s.block(s.newBlock(acme.ID, "all"))
	second := s.override(s.newOverride(acme.ID, "login"))
	changes := []exceptions.Change{
		{TenantID: acme.ID, Policy: "all", Revision: o.Revision}, {TenantID: acme.ID, Policy: "login", Revision: second.Revision},
	}
	for _, since := range []int64{0, before} {
		want := snapshot.Changes{
			Revision: s.revision(), Overrides: []exceptions.Override{o, second}, Entries: []exceptions.Entry{n},
			Blocks: []exceptions.Block{b}, PolicyChanges: changes,
		}
		if since == 0 {
			want.Tenants = []tenants.Tenant{acme}
		}
		got := s.since(since)
		slices.SortFunc(got.Overrides, func(a, b exceptions.Override) int { return int(a.Revision - b.Revision) })
		slices.SortFunc(got.PolicyChanges, func(a, b exceptions.Change) int { return int(a.Revision - b.Revision) })
		s.same(fmt.Sprint("since ", since), got, want)
	}
	s.same("since the last override", s.since(second.Revision-1), snapshot.Changes{
		Revision: second.Revision, Overrides: []exceptions.Override{second}, PolicyChanges: changes[1:],
	})
	s.same("nothing is newer", s.since(s.revision()), snapshot.Changes{Revision: s.revision()})
}

// A row that cannot be read has no effect, and does not change the others.
func testExceptionsBroken(s *suite) {
	acme := s.tenant("acme", "")
	for _, text := range []string{
		`[`, ``, `[{"name":"l1","quota":"5"}]`, `[{"name":"l1","colour":1}]`, `[{"name":"l1","window_ms":0}]`, `[null]`, `[{}] x`,
	} {
		o := s.newOverride(acme.ID, "all")
		o.Factor, o.Limits = 0, []enforcement.OverrideLimit{{Name: "l1", Quota: 1, Burst: enforcement.Keep}}
		o = s.override(o)
		s.must(s.Exec(`UPDATE overrides SET limits = $1 WHERE id = $2`, text, o.ID))
	}
	for _, text := range []string{`{`, ``, `null`, `{"user":null}`, `{"user":1}`, `{"user":"a","user":"b"}`, `[]`} {
		b := s.block(s.newBlock(acme.ID, "all"))
		s.must(s.Exec(`UPDATE blocks SET key_values = $1 WHERE id = $2`, text, b.ID))
	}
	good, fine := s.override(s.newOverride(acme.ID, "login")), s.block(s.newBlock(acme.ID, "login"))
	c := s.world()
	if len(c.Overrides) != 8 || len(c.Blocks) != 8 {
		s.Fatalf("%d overrides, %d blocks", len(c.Overrides), len(c.Blocks))
	}
	for _, o := range c.Overrides {
		if o.ID == good.ID {
			s.same("the good override", o, good)
		} else if o.Factor != 0 || len(o.Limits) != 0 {
			s.Errorf("a broken override was read: %+v", o)
		}
	}
	for _, b := range c.Blocks {
		if b.ID == fine.ID {
			s.same("the good block", b, fine)
		} else {
			s.same("a broken block", b.Key, map[string]string{"": ""})
		}
	}
	s.Clock.Add(48 * time.Hour)
	n, err := s.Store.EndExpired(s.ctx, s.Clock.Now(), 100) // they end as others do
	if err != nil || n != 16 {
		s.Errorf("%d ended, error %v", n, err)
	}
}

func testNoteReset(s *suite) {
	acme := s.tenant("acme", "")
	e := entry("counter.reset")
	e.Object, e.ObjectName, e.After = "login", "login", []byte(`{"policy":"login","key":{}}`)
	s.must(s.Store.NoteReset(s.ctx, acme.ID, e))
	e.TenantID, e.At, e.Revision = acme.ID, s.Clock.stored(), s.revision()
	line := s.last()
	e.ID, e.Seq, e.Hash = line.ID, line.Seq, line.Hash
	s.same("the line", line, e)
}

// If the audit line cannot be written, the change is not made.
func testExceptionsAuditFailure(s *suite) {
	acme := s.tenant("acme", "")
	o, n, b := s.override(s.newOverride(acme.ID, "all")), s.listed(s.newListed(acme.ID, "u1")), s.block(s.newBlock(acme.ID, "all"))
	before, lines := s.world(), s.lines(audit.Filter{})
	unwritable := audit.Entry{Actor: entry("").Actor} // a line without an action
	for what, write := range map[string]func(context.Context) error{
		"create override": func(ctx context.Context) error {
			_, err := s.Store.CreateOverride(ctx, s.newOverride(acme.ID, "all"), unwritable)
			return err
		},
		"create entry": func(ctx context.Context) error {
			_, err := s.Store.CreateEntry(ctx, s.newListed(acme.ID, "u2"), unwritable)
			return err
		},
		"create block": func(ctx context.Context) error {
			_, err := s.Store.CreateBlock(ctx, s.newBlock(acme.ID, "all"), unwritable)
			return err
		},
		"delete override": func(ctx context.Context) error { return s.Store.DeleteOverride(ctx, acme.ID, o.ID, unwritable) },
		"delete entry":    func(ctx context.Context) error { return s.Store.DeleteEntry(ctx, acme.ID, n.ID, unwritable) },
		"delete block":    func(ctx context.Context) error { return s.Store.DeleteBlock(ctx, acme.ID, b.ID, unwritable) },
		"note reset":      func(ctx context.Context) error { return s.Store.NoteReset(ctx, acme.ID, unwritable) },
	} {
		if err := write(s.ctx); err == nil {
			s.Errorf("%s passed without its line", what)
		}
	}
	s.same("the world", s.world(), before)
	s.same("the log", s.lines(audit.Filter{}), lines)
}
