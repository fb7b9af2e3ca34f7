package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// auditTests are the tests of the hash chain, and of audit lines without a change.
var auditTests = []struct {
	name string
	run  func(*suite)
}{
	{"the lines of the log are a chain", testChain},
	{"what was done to the log is found", testTampering},
	{"lines outside the chain are counted", testOutsideTheChain},
	{"writers that meet leave one chain", testConcurrentChain},
	{"a line without a change raises no revision", testWriteAudit},
	{"words from outside are made fit for a line", testCleanLines},
	{"lines by who acted and what they name", testWhoActed},
	{"events by their time, their tenant and their plan", testEvents},
	{"without its log nothing is changed", testNoLogNoChange},
}

// verified returns the verdict on the audit log. The Store that verifies the log has written only a
// few of its lines.
func (s *suite) verified() audit.Verdict {
	s.Helper()
	v, err := s.Other.VerifyAudit(s.ctx, audit.Verification{})
	s.must(err)
	return v
}

// unbroken checks that the chain has no fault and has the given number of lines.
func (s *suite) unbroken(lines int64) {
	s.Helper()
	v := s.verified()
	if v.Broken != nil || v.Lines != lines || v.Head.Seq != lines {
		s.Errorf("%d lines, the head tells of %d, broken: %v; want %d and none", v.Lines, v.Head.Seq, v.Broken, lines)
	}
}

func testChain(s *suite) {
	s.unbroken(0)
	t := s.tenant("acme", "")
	e := entry("tenant.update")
	e.Before, e.After = json.RawMessage(`{"name": "acme"}`), json.RawMessage(`{"name": "Äcme \u0000 <&>"}`)
	_, err := s.Store.UpdateTenant(s.ctx, tenants.Tenant{ID: t.ID, Document: tenantDocument("Acme", "")}, t.Revision, e)
	s.must(err)
	s.must(s.Store.WriteAudit(s.ctx, entry("sign_in.failed")))
	s.must(s.Other.PutSetting(s.ctx, "title", "x", entry("setting.put")))
	lines := s.lines(audit.Filter{})
	slices.Reverse(lines)
	var before audit.Hash
	for i, l := range lines {
		if l.Seq != int64(i+1) || l.Hash != l.Sum(before) {
			s.Errorf("line %d has the place %d and the hash %s, want %s", i+1, l.Seq, l.Hash, l.Sum(before))
		}
		before = l.Hash
	}
	s.unbroken(4)
	if v := s.verified(); v.Head.Hash != before {
		s.Errorf("the head has %s, want %s", v.Head.Hash, before)
	}
}

// sixLines writes six audit lines. The third line has every field set.
func (s *suite) sixLines() []audit.Entry {
	s.Helper()
	for i := range 6 {
		s.Clock.Add(time.Second)
		e := entry(fmt.Sprintf("test.%d", i+1))
		e.Object, e.ObjectName, e.TenantID = fmt.Sprint("o", i), fmt.Sprint("n", i), "t1"
		e.Before, e.After = json.RawMessage(`{"n":1}`), json.RawMessage(`{"n":2}`)
		s.must(s.Store.WriteAudit(s.ctx, e))
	}
	lines := s.lines(audit.Filter{})
	slices.Reverse(lines)
	s.unbroken(6)
	return lines
}

// A tampering is a forbidden change of six audit lines in the database, and the ID of the first
// line at which the verification must fail. The ID is "" if the verification cannot name a line.
type tampering struct {
	what       string
	statements []string
	seq        int64
}

var tamperings = []tampering{
	{"a line is removed", []string{`DELETE FROM audit_log WHERE seq = 3`}, 3},
	{"the first line is removed", []string{`DELETE FROM audit_log WHERE seq = 1`}, 1},
	{"the last line is removed", []string{`DELETE FROM audit_log WHERE seq = 6`}, 6},
	{"all lines are removed", []string{`DELETE FROM audit_log`}, 1},
	{"a line is removed and the others move up", []string{
		`DELETE FROM audit_log WHERE seq = 3`,
		`UPDATE audit_log SET seq = seq + 100 WHERE seq > 3`, `UPDATE audit_log SET seq = seq - 101 WHERE seq > 100`,
		`UPDATE audit_head SET seq = 5`,
	}, 3},
	{"the last line is removed and the head counts on", []string{
		`DELETE FROM audit_log WHERE seq = 6`, `UPDATE audit_head SET seq = 5`,
	}, 5},
	{"two lines are swapped", []string{
		`UPDATE audit_log SET seq = 100 WHERE seq = 3`, `UPDATE audit_log SET seq = 3 WHERE seq = 4`,
		`UPDATE audit_log SET seq = 4 WHERE seq = 100`,
	}, 3},
	{"a line is put in between", []string{
		`UPDATE audit_log SET seq = seq + 100 WHERE seq > 3`, `UPDATE audit_log SET seq = seq - 99 WHERE seq > 100`,
		copyOf(`'01900000-0000-7000-8000-000000000009'`, `4`, `hash`), `UPDATE audit_head SET seq = 7`,
	}, 4},
	{"a line is put in behind the last", []string{copyOf(`'01900000-0000-7000-8000-000000000009'`, `7`, `hash`)}, 7},
	{"a line is put in without a place", []string{copyOf(`'01900000-0000-7000-8000-000000000009'`, `NULL`, `NULL`)}, 0},
	{"a line loses its place", []string{`UPDATE audit_log SET seq = NULL, hash = NULL WHERE seq = 3`}, 3},
	{"what stood in one field stands in the next", []string{
		`UPDATE audit_log SET actor_id = 'k1a', actor_name = 'dmin' WHERE seq = 3`,
	}, 3},
	{"the hash of a line is another's", []string{
		`UPDATE audit_log SET hash = (SELECT hash FROM audit_head) WHERE seq = 3`,
	}, 3},
	{"the head has another hash", []string{`UPDATE audit_head SET hash = (SELECT hash FROM audit_log WHERE seq = 5)`}, 6},
	{"the head tells of more", []string{`UPDATE audit_head SET seq = 7`}, 7},
	{"the head tells of less", []string{`UPDATE audit_head SET seq = 5`}, 6},
	{"the head is gone", []string{`DELETE FROM audit_head`}, 0},
}

// copyOf inserts the third line a second time.
func copyOf(id, seq, hash string) string {
	return `INSERT INTO audit_log (id, at, revision, actor_kind, actor_id, actor_name, request_id, address,
			tenant_id, action, object, object_name, before_doc, after_doc, seq, hash)
		SELECT ` + id + `, at, revision, actor_kind, actor_id, actor_name, request_id, address,
			tenant_id, action, object, object_name, before_doc, after_doc, ` + seq + `, ` + hash + `
		FROM audit_log WHERE seq = 3`
}

func testTampering(s *suite) {
	before := s.sixLines()
	cases := slices.Clone(tamperings)
	for column, value := range map[string]string{
		"id": `'01900000-0000-7000-8000-000000000009'`, "at": `(SELECT at FROM audit_log WHERE seq = 5)`, "revision": `revision + 1`,
		"actor_kind": `'user'`, "actor_id": `'k2'`, "actor_name": `'Admin'`, "request_id": `''`, "address": `'192.0.2.2'`,
		"tenant_id": `NULL`, "action": `'test.4'`, "object": `'o9'`, "object_name": `'n2 '`,
		"before_doc": `'{"n": 1}'`, "after_doc": `NULL`,
	} {
		cases = append(cases, tampering{column + " is changed", []string{`UPDATE audit_log SET ` + column + ` = ` + value + ` WHERE seq = 3`}, 3})
	}
	for _, statement := range slices.Concat(s.Unguard, []string{
		`CREATE TABLE kept AS SELECT * FROM audit_log`, `CREATE TABLE kept_head AS SELECT * FROM audit_head`,
	}) {
		s.must(s.Exec(statement))
	}
	for _, c := range cases {
		for _, statement := range c.statements {
			s.must(s.Exec(statement))
		}
		v := s.verified()
		switch {
		case v.Broken == nil:
			s.Errorf("%s: not found", c.what)
		case v.Broken.Seq != c.seq:
			s.Errorf("%s: %v; want line %d", c.what, v.Broken, c.seq)
		}
		for _, statement := range []string{
			`DELETE FROM audit_log`, `INSERT INTO audit_log SELECT * FROM kept`,
			`DELETE FROM audit_head`, `INSERT INTO audit_head SELECT * FROM kept_head`,
		} {
			s.must(s.Exec(statement))
		}
		s.unbroken(6)
	}
	s.forge(before)
	s.same("the log", len(s.lines(audit.Filter{})), len(before)+1)
}

// forge adds a line with a correct hash. Only the stored head shows that the line is forged.
func (s *suite) forge(lines []audit.Entry) {
	s.Helper()
	last := lines[len(lines)-1]
	next := lines[2]
	next.ID, next.Seq = "01900000-0000-7000-8000-000000000009", 7
	hash := next.Sum(last.Hash)
	s.must(s.Exec(copyOf(`'`+next.ID+`'`, `7`, `hash`)))
	s.must(s.Exec(`UPDATE audit_log SET hash = $1 WHERE seq = 7`, hash[:]))
	if v := s.verified(); v.Broken == nil || v.Broken.Seq != 7 || v.Lines != 7 {
		s.Errorf("a forged line: %+v", v)
	}
}

// The verification checks only the number of lines that were written before the chain existed.
func testOutsideTheChain(s *suite) {
	for _, statement := range s.Unguard {
		s.must(s.Exec(statement))
	}
	s.must(s.Store.WriteAudit(s.ctx, entry("test")))
	s.must(s.Exec(`UPDATE audit_log SET seq = NULL, hash = NULL`))
	s.must(s.Exec(`UPDATE audit_head SET seq = 0, hash = $1, outside = 1`, make([]byte, 32)))
	s.must(s.Store.WriteAudit(s.ctx, entry("test")))
	if v := s.verified(); v.Broken != nil || v.Lines != 1 || v.Head.Outside != 1 {
		s.Errorf("one line before the chain, one in it: %+v", v)
	}
	if first := s.lines(audit.Filter{})[1]; first.Seq != 0 || first.Hash != (audit.Hash{}) {
		s.Errorf("the line before the chain: %+v", first)
	}
	s.must(s.Exec(`DELETE FROM audit_log WHERE seq IS NULL`))
	if v := s.verified(); v.Broken == nil || v.Broken.Seq != 0 {
		s.Errorf("the line before the chain was removed: %+v", v)
	}
}

// Eight goroutines in two processes write edits and audit lines without an edit.
func testConcurrentChain(s *suite) {
	const writers, each = 8, 15
	var wg sync.WaitGroup
	for writer := range writers {
		at := s.Store
		if writer%2 == 1 {
			at = s.Other
		}
		wg.Go(func() {
			for i := range each {
				err := at.PutSetting(s.ctx, fmt.Sprint("s", writer), fmt.Sprint(i), entry("setting.put"))
				if err == nil {
					err = at.WriteAudit(s.ctx, entry("access.refused"))
				}
				if err != nil {
					s.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s.unbroken(2 * writers * each)
	lines := s.lines(audit.Filter{Limit: 2 * writers * each})
	slices.SortFunc(lines, func(a, b audit.Entry) int { return int(a.Seq - b.Seq) })
	if !slices.IsSortedFunc(lines, func(a, b audit.Entry) int { return int(a.Revision - b.Revision) }) {
		s.Error("the chain goes back to a lower revision")
	}
}

func testWriteAudit(s *suite) {
	s.must(s.Store.WriteAudit(s.ctx, entry("sign_in.failed"))) // nothing was ever changed
	s.tenant("acme", "")
	before := s.world()
	s.Clock.Add(time.Minute)
	e := entry("access.refused")
	e.TenantID, e.Object, e.ObjectName, e.After = "t1", "GET /people", "people", json.RawMessage(`{"count":3}`)
	s.must(s.Store.WriteAudit(s.ctx, e))
	s.same("the world", s.world(), before)
	line := s.lines(audit.Filter{Action: "access.refused"})[0]
	e.ID, e.Seq, e.Hash, e.At, e.Revision = line.ID, 3, line.Hash, s.Clock.stored(), 1
	s.same("the line", line, e)
	if first := s.lines(audit.Filter{Action: "sign_in.failed"})[0]; first.Revision != 0 || first.Seq != 1 {
		s.Errorf("the first line: %+v", first)
	}
	if err := s.Store.WriteAudit(s.ctx, audit.Entry{Actor: e.Actor}); !problem.Is(err, problem.Invalid) {
		s.Errorf("a line without an action: %v", err)
	}
	s.unbroken(3)
}

func testCleanLines(s *suite) {
	e := entry("sign_in.failed")
	e.ObjectName = strings.Repeat("ä", 300)
	e.Object = "a\nfake line\x00\x1b[31m"
	e.Actor.Name = "Ada\u202eadA\u2028"
	e.Origin.Address = "\xff"
	s.must(s.Store.WriteAudit(s.ctx, e))
	got := s.lines(audit.Filter{})[0]
	s.same("name", got.ObjectName, strings.Repeat("ä", 255)+"…")
	s.same("object", got.Object, `a\u000afake line\u0000\u001b[31m`)
	s.same("actor", got.Actor.Name, `Ada\u202eadA\u2028`)
	s.same("address", got.Origin.Address, `\ufffd`)
	s.unbroken(1)
}

// If the audit log cannot be written, or its head is missing, every change fails.
func testNoLogNoChange(s *suite) {
	t := s.tenant("acme", "")
	before := s.world()
	for _, broken := range []struct{ damage, mend string }{
		{`ALTER TABLE audit_log RENAME TO away`, `ALTER TABLE away RENAME TO audit_log`},
		{`UPDATE audit_head SET seq = 0`, `UPDATE audit_head SET seq = 1`},
		{`DELETE FROM audit_head`, ``},
	} {
		s.must(s.Exec(broken.damage))
		if _, err := s.Store.CreateKey(s.ctx, s.newKey(t.ID), entry("key.create")); err == nil {
			s.Errorf("a key was made after %s", broken.damage)
		}
		if err := s.Store.DeleteTenant(s.ctx, t.ID, t.Revision, entry("tenant.delete")); err == nil {
			s.Errorf("a tenant was removed after %s", broken.damage)
		}
		if err := s.Store.WriteAudit(s.ctx, entry("test")); err == nil {
			s.Errorf("a line was written after %s", broken.damage)
		}
		s.same("the world after "+broken.damage, s.world(), before)
		if broken.mend != "" {
			s.must(s.Exec(broken.mend))
			s.unbroken(1)
		}
	}
}

func testWhoActed(s *suite) {
	for _, l := range []struct{ id, name, action, object string }{
		{"u1", "Ada@people.example", "plan.publish", "pro"},
		{"u2", "Ädele_M@people.example", "plan.create", "pro"},
		{"u3", "u1", "plans.other", "Pro"},
		{"k1", `100%\`, "operator_key.create", "nightly job"},
	} {
		e := entry(l.action)
		e.Actor, e.Object, e.ObjectName = audit.Actor{Kind: "user", ID: l.id, Name: l.name}, "of-"+l.id, l.object
		s.must(s.Store.WriteAudit(s.ctx, e))
	}
	for _, test := range []struct {
		f    audit.Filter
		want []string // ids of actors, newest first
	}{
		{audit.Filter{Actor: "u1"}, []string{"u3", "u1"}},
		{audit.Filter{Actor: "PEOPLE.example"}, []string{"u2", "u1"}},
		{audit.Filter{Actor: "Ädele"}, []string{"u2"}},
		{audit.Filter{Actor: "e_M@"}, []string{"u2"}},
		{audit.Filter{Actor: "a_a"}, nil},
		{audit.Filter{Actor: "%"}, []string{"k1"}},
		{audit.Filter{Actor: `\`}, []string{"k1"}},
		{audit.Filter{Actor: "u"}, []string{"u3"}},
		{audit.Filter{Named: "pro"}, []string{"u2", "u1"}},
		{audit.Filter{Named: "of-k1"}, []string{"k1"}},
		{audit.Filter{Named: "nightly"}, nil},
		{audit.Filter{Group: "plan"}, []string{"u2", "u1"}},
		{audit.Filter{Group: "operator_key"}, []string{"k1"}},
		{audit.Filter{Group: "plan", Actor: "ada"}, []string{"u1"}},
		{audit.Filter{Actor: "people.example", Limit: 1}, []string{"u2"}},
	} {
		var got []string
		for _, l := range s.lines(test.f) {
			got = append(got, l.Actor.ID)
		}
		s.same(fmt.Sprintf("%+v", test.f), got, test.want)
	}
}

func testEvents(s *suite) {
	from := s.Clock.stored()
	for i, l := range []struct{ action, tenant, name string }{
		{"plan.publish", "", "pro"},
		{"override.create", "t1", "api"},
		{"plan.save_draft", "", "pro"},
		{"block.create", "t2", "login"},
		{"plan.publish", "", "free"},
		{"key.create", "t1", "gateway"},
		{"override.expire", "t1", "api"},
	} {
		e := entry(l.action)
		e.Object, e.ObjectName, e.TenantID = fmt.Sprint("o", i), l.name, l.tenant
		s.must(s.Store.WriteAudit(s.ctx, e))
		s.Clock.Add(time.Second)
	}
	to := s.Clock.stored()
	for _, test := range []struct {
		f    audit.EventFilter
		want []string // newest first
	}{
		{audit.EventFilter{From: from, To: to}, []string{
			"override.expire t1 api", "plan.publish  free", "block.create t2 login", "override.create t1 api", "plan.publish  pro",
		}},
		{audit.EventFilter{From: from, To: to, Limit: 1}, []string{"override.expire t1 api"}},
		{audit.EventFilter{From: from, To: to, TenantID: "t1"}, []string{"override.expire t1 api", "override.create t1 api"}},
		{audit.EventFilter{From: from, To: to, Plan: "pro"}, []string{"plan.publish  pro"}},
		{
			audit.EventFilter{From: from.Add(time.Second), To: from.Add(4 * time.Second)},
			[]string{"block.create t2 login", "override.create t1 api"},
		},
		{audit.EventFilter{From: to, To: to.Add(time.Hour)}, nil},
	} {
		list, err := s.Store.AuditEvents(s.ctx, test.f)
		s.must(err)
		var got []string
		for _, e := range list {
			got = append(got, strings.Join([]string{e.Action, e.TenantID, e.ObjectName}, " "))
			if e.ID == "" || e.At.Before(test.f.From) || !e.At.Before(test.f.To) {
				s.Errorf("%+v returns %+v", test.f, e)
			}
		}
		s.same(fmt.Sprintf("%+v", test.f), got, test.want)
	}
}
