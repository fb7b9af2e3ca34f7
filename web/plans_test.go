package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/plans"
)

// text returns the text of a page with single spaces.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// says fails the test unless the main part of a page contains the texts in want and none of
// those in not.
func says(t *testing.T, name string, page reply, status int, want []string, not ...string) {
	t.Helper()
	if page.Code != status {
		t.Errorf("%s: %d, want %d", name, page.Code, status)
	}
	whole := page.body
	for n := range page.tree(t).Descendants() {
		if n.Data == "main" {
			whole = text(n)
		}
	}
	for _, s := range want {
		if !strings.Contains(whole, s) {
			t.Errorf("%s does not say %q:\n%s", name, s, whole)
		}
	}
	for _, s := range not {
		if strings.Contains(whole, s) {
			t.Errorf("%s says %q", name, s)
		}
	}
}

// links returns the targets of a page's links and forms.
func links(t *testing.T, page reply) []string {
	t.Helper()
	var out []string
	for n := range page.tree(t).Descendants() {
		for _, key := range []string{"href", "action", "formaction"} {
			if v := attr(n, key); v != "" {
				out = append(out, v)
			}
		}
	}
	return out
}

func TestPlanPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	says(t, "no plans", w.get("/plans", "viewer"), 200, []string{"A plan sets what its tenants may call"}, "Create a plan", "New plan")
	says(t, "no plans", w.get("/plans", "editor"), 200, []string{"Create a plan", "New plan"})
	w.furnish(t)
	_, err := w.plans.CreatePlan(t.Context(), "free", plans.Sample())
	must(t, err)
	says(t, "list", w.get("/plans", "viewer"), 200, []string{"Pro pro version 1 differs 4 1", "Starter free not published only a draft 4 0"})
	says(t, "search", w.get("/plans?q=star", "viewer"), 200, []string{"Starter"}, "Pro pro")
	says(t, "nothing found", w.get("/plans?q=zzz", "viewer"), 200, []string{"No plan name or slug contains: zzz"})

	page := w.get("/plans/pro", "viewer")
	says(t, "plan", page, 200, []string{
		"version 1 in force", "draft differs", "1 tenant", "For teams.",
		"120 per minute, bursts of 20", "5 per minute, exact", "10 per minute, sliding", "100,000 per day",
		"POST requests to /v1/login", "each ip (IPv6 by its /64 network)", "the whole tenant", "every request",
		"denied with 503 while Redis does not answer", "shadow", "enforced", "See what they would deny",
	}, "Edit the draft", "Delete")
	for _, link := range links(t, page) {
		if strings.Contains(link, "/edit") || strings.Contains(link, "/publish") || strings.Contains(link, "/delete") {
			t.Errorf("a viewer is led to %s", link)
		}
	}
	if got := links(t, w.get("/plans/pro", "editor")); !slices.Contains(got, "/plans/pro/edit?policy=search#policies.3") {
		t.Errorf("an editor is not led to the policy: %q", got)
	}
	says(t, "only a draft", w.get("/plans/free", "editor"), 200, []string{"This plan has no published version. You see the draft"})
	for _, path := range []string{"/plans/none", "/plans/%20", "/plans/pro/versions/0", "/plans/pro/versions/2", "/plans/pro/versions/01", "/plans/pro/versions/x"} {
		if got := w.get(path, "editor"); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
	// Only the selected policy is open.
	open := ""
	for n := range w.get("/plans/pro/edit?policy=monthly", "editor").tree(t).Descendants() {
		if n.Data == "details" && has(n, "open") {
			open += attr(n, "id") + " "
		}
	}
	if open != "policies.2 " {
		t.Errorf("open are %q", open)
	}
}

func TestCreatePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.post("/plans/new", "editor", url.Values{"slug": {"gold"}, "name": {"Gold"}, "from": {""}})
	if made.Code != http.StatusSeeOther || made.Header().Get("Location") != "/plans/gold/edit?done=plan-created" {
		t.Fatalf("%d %v", made.Code, made.Header())
	}
	says(t, "made", w.get("/plans/gold/edit?done=plan-created", "editor"), 200, []string{"The plan is created", "120 per minute, sliding"})
	copied := w.post("/plans/new", "editor", url.Values{"slug": {"silver"}, "name": {"Silver"}, "from": {"gold"}})
	p, err := w.plans.Plan(t.Context(), "silver")
	must(t, err)
	if copied.Code != http.StatusSeeOther || !strings.HasPrefix(copied.Header().Get("Location"), "/plans/silver/edit") || p.Draft.Name() != "Silver" || len(p.Draft.Policies()) != 1 {
		t.Errorf("a copy: %d %v %+v", copied.Code, copied.Header(), p.Draft)
	}
	for from, want := range map[string]string{"gold": "gold", "zzz": "zzz", "<b>": ""} {
		chosen := ""
		for n := range w.get("/plans/new?from="+url.QueryEscape(from), "editor").tree(t).Descendants() {
			if n.Data == "option" && has(n, "selected") && attr(n.Parent, "name") == "from" {
				chosen = attr(n, "value")
			}
		}
		if chosen != want {
			t.Errorf("a copy of %s begins with %q", from, chosen)
		}
	}
	for name, c := range map[string]struct {
		form   url.Values
		faulty []string
	}{
		"taken":  {url.Values{"slug": {"gold"}, "name": {"Typed"}}, []string{"slug"}},
		"bad":    {url.Values{"slug": {"A B"}, "name": {""}}, []string{"slug", "name"}},
		"origin": {url.Values{"slug": {"x"}, "name": {"Typed"}, "from": {"none"}}, []string{"from"}},
	} {
		page := w.post("/plans/new", "editor", c.form)
		var faulty []string
		for n := range page.tree(t).Descendants() {
			if attr(n, "aria-invalid") == "true" {
				faulty = append(faulty, attr(n, "id"))
			}
			if n.Data == "input" && c.form.Has(attr(n, "name")) && attr(n, "value") != c.form.Get(attr(n, "name")) {
				t.Errorf("%s: %s is %q", name, attr(n, "name"), attr(n, "value"))
			}
		}
		slices.Sort(faulty)
		slices.Sort(c.faulty)
		if page.Code != 422 || !slices.Equal(faulty, c.faulty) {
			t.Errorf("%s: %d, faults at %q, want %q", name, page.Code, faulty, c.faulty)
		}
	}
}

func TestDeletePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("pro", plans.Sample().Content(), "acme")
	p, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	if page := w.get("/plans/pro", "editor"); strings.Contains(page.body, "/delete") {
		t.Error("a plan with tenants can be deleted on its page")
	}
	pro, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	if got := w.post("/plans/pro/delete", "editor", url.Values{"revision": {fmt.Sprint(pro.Revision)}, "confirm": {"pro"}}); got.Code != http.StatusConflict {
		t.Errorf("in use: %d", got.Code)
	}
	revision := fmt.Sprint(p.Revision)
	wrong := w.post("/plans/gold/delete", "editor", url.Values{"revision": {revision}, "confirm": {"golf"}})
	says(t, "another slug", wrong, 422, []string{"nothing was deleted"})
	if !strings.Contains(wrong.body, `value="golf"`) {
		t.Error("what was typed is lost")
	}
	if got := w.post("/plans/gold/delete", "editor", url.Values{"revision": {"1"}, "confirm": {"gold"}}); got.Code != http.StatusPreconditionFailed {
		t.Errorf("stale: %d", got.Code)
	}
	if got := w.post("/plans/gold/delete", "editor", url.Values{"revision": {revision}, "confirm": {"gold"}}); got.Code != http.StatusSeeOther {
		t.Errorf("%d", got.Code)
	}
	says(t, "after", w.get("/plans?done=plan-deleted", "editor"), 200, []string{"The plan is deleted."}, "gold")
}

// Two people edit one draft. The second one sees the changes of the first, and no work is
// lost.
func TestTwoEditors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	form := func(by string) url.Values {
		_, f := filled(t, w.get("/plans/gold/edit", by).tree(t), "draft", "save")
		return f
	}
	first, second := form("owner"), form("editor")
	first.Set("policies.1.limits.0.quota", "240")
	second.Set("policies.3.limits.0.quota", "5,000")
	second.Set("name", "Mine <b>")
	if got := w.post("/plans/gold/edit", "owner", first); got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/plans/gold/diff?done=draft-saved" {
		t.Fatalf("first: %d %v", got.Code, got.Header())
	}
	if got := w.post("/plans/gold/edit", "owner", first); got.Code != http.StatusSeeOther {
		t.Errorf("the same again: %d", got.Code)
	}
	conflict := w.post("/plans/gold/edit", "editor", second)
	says(t, "conflict", conflict, http.StatusConflict, []string{
		"Another person saved this draft while you edited it", "The other draft was saved by owner@people.example",
		"Changes in the other draft", "Limit l1 120 per minute, sliding 240 per minute, sliding",
		"Your changes", "Limit l1, quota 100,000 5,000", "Differences between the other draft and yours", "240 per minute, sliding 120 per minute, sliding",
	})
	strict(t, "conflict", conflict.tree(t))

	// Continuing with one's own version saves nothing and keeps all entered values.
	now := func() plans.Plan {
		p, err := w.plans.Plan(t.Context(), "gold")
		must(t, err)
		return p
	}
	mine := url.Values{}
	for n := range conflict.tree(t).Descendants() {
		if n.Data == "input" && attr(n, "type") == "hidden" && (attr(n, "name") == "json" || attr(n, "name") == "revision") {
			mine.Set(attr(n, "name"), crlf(attr(n, "value")))
		}
	}
	mine.Set("do", "form")
	before := now()
	on := w.post("/plans/gold/edit/json", "editor", mine)
	_, again := filled(t, on.tree(t), "draft", "save")
	if on.Code != 200 || again.Get("name") != "Mine <b>" || again.Get("policies.3.limits.0.quota") != "5000" || now().DraftRevision != before.DraftRevision {
		t.Errorf("going on: %d %v", on.Code, again)
	}
	// A third person saves meanwhile. Overwriting applies only to the version that the page
	// showed.
	third := form("owner")
	third.Set("description", "third")
	if got := w.post("/plans/gold/edit", "owner", third); got.Code != http.StatusSeeOther {
		t.Fatalf("third: %d", got.Code)
	}
	mine.Set("do", "save")
	if got := w.post("/plans/gold/edit/json", "editor", mine); got.Code != http.StatusConflict {
		t.Errorf("over what nobody saw: %d", got.Code)
	}
	mine.Set("revision", fmt.Sprint(now().DraftRevision))
	if got := w.post("/plans/gold/edit/json", "editor", mine); got.Code != http.StatusSeeOther {
		t.Errorf("over theirs: %d", got.Code)
	}
	d := now().Draft
	if d.Name() != "Mine <b>" || d.Policies()[3].Limits[0].Quota != 5000 || d.Policies()[1].Limits[0].Quota != 120 {
		t.Errorf("saved is %+v", d)
	}
	// If the form has an old revision and an error, the page shows the error first and keeps
	// the revision.
	second.Set("name", "")
	faulty := w.post("/plans/gold/edit", "editor", second)
	if _, f := filled(t, faulty.tree(t), "draft", "save"); faulty.Code != 422 || f.Get("revision") != second.Get("revision") {
		t.Errorf("a stale fault: %d at %s", faulty.Code, f.Get("revision"))
	}
}

func TestDraftAsJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	_, f := filled(t, w.get("/plans/gold/edit/json", "editor").tree(t), "draft", "save")
	encoded, err := p.Draft.MarshalJSON()
	must(t, err)
	var want, got any
	must(t, json.Unmarshal(encoded, &want))
	must(t, json.Unmarshal([]byte(f.Get("json")), &got))
	if !cmp.Equal(got, want) {
		t.Errorf("the page has not what the API has:\n%s", cmp.Diff(want, got))
	}
	send := func(text, do string) reply {
		return w.post("/plans/gold/edit/json", "editor", url.Values{"revision": {f.Get("revision")}, "json": {text}, "do": {do}})
	}
	good := f.Get("json")
	for name, c := range map[string]struct {
		text, do string
		says     []string
	}{
		"syntax":     {strings.Replace(good, `"slug": "api-per-user",`, `"slug": "api-per-user"`, 1), "save", []string{"Line 33, /policies/1/slug", "near byte"}},
		"unknown":    {strings.Replace(good, `"description": "A sample`, `"descr": "A sample`, 1), "save", []string{"Line 3, /descr: unknown field"}},
		"window":     {strings.Replace(good, `"window": "1s"`, `"window": "month"`, 1), "save", []string{"/policies/2/limits/0/window: only fixed_window has calendar windows"}},
		"quota":      {strings.Replace(good, `"quota": 120`, `"quota": -1`, 1), "save", []string{"/policies/1/limits/0/quota: must be 0 to"}},
		"not a form": {`{"name": 5}`, "form", []string{"Correct the JSON to show it as a form", "/name"}},
		"nothing":    {"", "form", []string{"Line 1"}},
	} {
		if c.text == good {
			t.Fatalf("%s changes nothing", name)
		}
		page := send(c.text, c.do)
		says(t, name, page, 422, c.says)
		strict(t, name, page.tree(t))
		if _, kept := filled(t, page.tree(t), "draft", "save"); kept.Get("json") != crlf(c.text) || kept.Get("revision") != f.Get("revision") {
			t.Errorf("%s: what was typed is lost", name)
		}
	}
	// A document that package plans would reject can still be shown in the form.
	page := send(strings.Replace(good, `"quota": 120`, `"quota": -1`, 1), "form")
	if _, form := filled(t, page.tree(t), "draft", "save"); page.Code != 200 || form.Get("policies.1.limits.0.quota") != "-1" {
		t.Errorf("as a form: %d", page.Code)
	}
	if got := send(good, "drop"); got.Code != 400 {
		t.Errorf("another button: %d", got.Code)
	}
	// If the values of the form are no valid document, the page says why it cannot show them as
	// JSON.
	_, form := filled(t, w.get("/plans/gold/edit", "editor").tree(t), "draft", "json")
	form.Set("policies.0.limits.0.window", "a while")
	says(t, "no JSON", w.post("/plans/gold/edit", "editor", form), 422, []string{"limit 1, window: must be a whole number with a unit"})
}

func TestDiffAndPublish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("pro", plans.Sample().Content(), "acme")
	save := func(change func(d *plans.Content)) plans.Plan {
		p, err := w.plans.Plan(t.Context(), "pro")
		must(t, err)
		d := p.Draft.Content()
		change(&d)
		p, err = w.plans.SaveDraft(t.Context(), "pro", plans.New(d), p.DraftRevision)
		must(t, err)
		return p
	}
	says(t, "no difference", w.get("/plans/pro/diff", "editor"), 200, []string{"No differences."}, "Publish…")
	p := save(func(d *plans.Content) {
		d.Policies[1].Limits[0].Quota, d.Policies[1].Limits[0].CarryOver = 60, enforcement.CarryProportional
		d.Policies[2].Limits[0].Algorithm = enforcement.GCRA
		d.Policies[2].Match.Attributes = map[string]string{"a/b": "x"}
		d.Policies = append(d.Policies[:3], plans.New(plans.Content{Policies: []plans.Policy{{
			Slug: "per-ip", CountBy: []string{"ip"},
			Limits: []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 120, Window: time.Minute}},
		}}}).Policies()...)
	})
	page := w.get("/plans/pro/diff", "viewer")
	says(t, "diff", page, 200, []string{
		"From version 1 to the draft", "tenant-total removed", "per-ip added", "Limit l1 120 per minute, sliding 60 per minute, sliding, new numbers: proportional",
		"Limit l1, quota 120 60", "Attribute a/b – x", "Limit l1, algorithm token_bucket gcra",
		"api-per-user, l1 the used share of the limit stays", "search-per-user, l1 counters keep their values", "tenant-total, l1 no longer counted", "per-ip, l1 counters start at zero",
		`- /policies/api-per-user/limits/l1/quota: 120`, `+ /policies/api-per-user/limits/l1/quota: 60`,
	}, "Publish…")
	strict(t, "diff", page.tree(t))

	confirm := w.get("/plans/pro/publish", "editor")
	says(t, "publish", confirm, 200, []string{"Publish the draft as version 2", "It applies to 1 tenant", "Publish for 1 tenant", "Limit l1, quota 120 60"})
	revision := fmt.Sprint(p.DraftRevision)
	long := w.post("/plans/pro/publish", "editor", url.Values{"revision": {revision}, "note": {strings.Repeat("x", plans.MaxNote+1)}})
	says(t, "a long note", long, 422, []string{"The note must have at most 500 characters"})
	if !strings.Contains(long.body, strings.Repeat("x", plans.MaxNote+1)) {
		t.Error("the note is lost")
	}
	p = save(func(d *plans.Content) { d.Policies[1].Limits[0].Quota = 70 })
	stale := w.post("/plans/pro/publish", "editor", url.Values{"revision": {revision}, "note": {"why not"}})
	says(t, "stale", stale, http.StatusConflict, []string{"Nothing was published", "Limit l1, quota 120 70", "why not"})
	if after, err := w.plans.Plan(t.Context(), "pro"); err != nil || after.Published != 1 {
		t.Errorf("published %d, %v", after.Published, err)
	}
	done := w.post("/plans/pro/publish", "editor", url.Values{"revision": {fmt.Sprint(p.DraftRevision)}, "note": {"Fewer <calls>"}})
	if done.Code != http.StatusSeeOther || !strings.HasPrefix(done.Header().Get("Location"), "/plans/pro/rollout?revision=") {
		t.Fatalf("%d %v", done.Code, done.Header())
	}
	after, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	if w.watcher.Current().Revision() < after.Revision {
		t.Error("this node does not have it in force")
	}

	// Nodes report the revision that they use.
	node := func(id string, revision int64) {
		must(t, w.store.PutNode(t.Context(), nodes.Node{
			ID: uuid.NewSHA1(uuid.Nil, []byte(id)).String(), Name: id + ":8080", At: time.Now(), StartedAt: time.Now(),
			Snapshot: nodes.Snapshot{Revision: revision, ConfirmedAt: time.Now()},
		}))
	}
	where := done.Header().Get("Location")
	says(t, "nobody told", w.get(where, "viewer"), 200, []string{"Version 2 is published", "No node has reported yet"})
	node("a", after.Revision)
	node("b", after.Revision-1)
	waiting := w.get(where, "viewer")
	says(t, "waiting", waiting, 200, []string{"In force on 1 of 2 nodes", "b:8080 not yet", "a:8080 in force"})
	polls := func(page reply) bool { return strings.Contains(page.body, `hx-trigger="every 2s"`) }
	if !polls(waiting) {
		t.Error("the page does not ask again")
	}
	w.now.Add((10 * time.Minute).Microseconds())
	if late := w.get(where, "viewer"); polls(late) || !strings.Contains(late.body, "Refresh") {
		t.Error("the page asks for ever")
	}
	node("b", after.Revision+3)
	all := w.get(where, "viewer")
	says(t, "all", all, 200, []string{"In force on 2 nodes: all of them"})
	if polls(all) {
		t.Error("the page still asks")
	}
}

// A draft with more charges than a limiter can process cannot be published on the page.
func TestTooHeavyDraft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := plans.Content{Name: "Heavy"}
	for i := range 9 {
		p := plans.Policy{Slug: fmt.Sprint("p", i)}
		for range 4 {
			p.Limits = append(p.Limits, enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Second})
		}
		d.Policies = append(d.Policies, p)
	}
	p, err := w.plans.CreatePlan(t.Context(), "heavy", plans.New(d))
	must(t, err)
	says(t, "diff", w.get("/plans/heavy/diff", "editor"), 200, []string{"one request could be charged to 36 limits"}, "Publish…")
	says(t, "form", w.get("/plans/heavy/publish", "editor"), 200, []string{"could be charged to 36 limits"}, "Publish for")
	says(t, "post", w.post("/plans/heavy/publish", "editor", url.Values{"revision": {fmt.Sprint(p.DraftRevision)}, "note": {""}}), 422, []string{"could be charged to 36 limits"})
}

func TestHistoryAndRollback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("pro", plans.Sample().Content(), "acme")
	d := plans.Sample().Content()
	d.Policies[1].Limits[0].Quota = 60
	p, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	p, err = w.plans.SaveDraft(t.Context(), "pro", plans.New(d), p.DraftRevision)
	must(t, err)
	w.post("/plans/pro/publish", "editor", url.Values{"revision": {fmt.Sprint(p.DraftRevision)}, "note": {"Fewer calls"}})
	says(t, "history", w.get("/plans/pro/history", "viewer"), 200, []string{"Version 2 in force", "editor@people.example Fewer calls", "Version 1"})
	version := w.get("/plans/pro/versions/1", "editor")
	says(t, "version", version, 200, []string{"Version 1", "Differences between this version and the draft", "Publish again…", "Copy to the draft", "Newer version"}, "Older version")
	says(t, "version", w.get("/plans/pro/versions/2", "editor"), 200, []string{"Changes since version 1", "Limit l1, quota 120 60", "Older version"}, "Publish again…", "Copy to the draft")
	says(t, "for a viewer", w.get("/plans/pro/versions/1", "viewer"), 200, nil, "Publish again…", "Copy to the draft")
	strict(t, "version", version.tree(t))

	confirm := w.get("/plans/pro/versions/1/publish", "editor")
	says(t, "roll back", confirm, 200, []string{"Roll back to version 1", "Publish version 1 for 1 tenant", "Limit l1, quota 60 120"})
	// Another person publishes meanwhile.
	if got := w.post("/plans/pro/versions/1/publish", "editor", url.Values{"in_force": {"1"}, "note": {"x"}}); got.Code != http.StatusConflict {
		t.Errorf("stale: %d", got.Code)
	}
	done := w.post("/plans/pro/versions/1/publish", "editor", url.Values{"in_force": {"2"}, "note": {"Too few"}})
	if done.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", done.Code, done.body)
	}
	says(t, "after", w.get("/plans/pro/history", "viewer"), 200, []string{"Version 1 in force published again", "editor@people.example Too few", "Fewer calls"})
	says(t, "forth", w.get("/plans/pro/versions/2/publish", "editor"), 200, []string{"Publish version 2 again"})

	if got := w.post("/plans/pro/versions/1/copy", "editor", url.Values{"revision": {fmt.Sprint(p.DraftRevision - 1)}}); got.Code != http.StatusConflict {
		t.Errorf("a stale copy: %d", got.Code)
	}
	if got := w.post("/plans/pro/versions/1/copy", "editor", url.Values{"revision": {fmt.Sprint(p.DraftRevision)}}); got.Code != http.StatusSeeOther {
		t.Errorf("copy: %d", got.Code)
	}
	p, err = w.plans.Plan(t.Context(), "pro")
	must(t, err)
	if p.Draft.Policies()[1].Limits[0].Quota != 120 {
		t.Errorf("the draft is %+v", p.Draft)
	}
}

func TestPreviewPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	p, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	d := p.Draft.Content()
	d.Policies = append(d.Policies, plans.Policy{
		Slug: "fresh", CountBy: []string{"session"}, Limits: []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Second}},
	})
	_, err = w.plans.SaveDraft(t.Context(), "pro", plans.New(d), p.DraftRevision)
	must(t, err)
	page := w.get("/plans/pro/preview?range=6h", "editor")
	says(t, "preview", page, 200, []string{
		"What the draft would have denied", "Requests", "Denied by the published version", "Denied by the draft", "In shadow", "Would deny",
		"exact", "estimated", "needs shadow", "Denied as published", "Set this policy to shadow in the draft fresh", "1 tenant",
	})
	strict(t, "preview", page.tree(t))
	says(t, "for a viewer", w.get("/plans/pro/preview", "viewer"), 200, []string{"needs shadow"}, "Put this policy in shadow")
	for _, q := range []string{"?range=6h", "?range=7d", "?range=90d", ""} {
		current := ""
		for n := range w.get("/plans/pro/preview"+q, "editor").tree(t).Descendants() {
			if n.Data == "a" && has(n, "aria-current") && strings.Contains(attr(n, "href"), "/preview?range=") {
				current += attr(n, "href")
			}
		}
		want := map[string]string{"?range=6h": "6h", "?range=7d": "7d"}[q]
		if want == "" {
			want = "24h"
		}
		if current != "/plans/pro/preview?range="+want {
			t.Errorf("%s: the time is %q", q, current)
		}
	}
	now, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	if got := w.post("/plans/pro/preview/shadow", "editor", url.Values{"policy": {"fresh"}, "revision": {fmt.Sprint(now.DraftRevision - 1)}}); got.Code != http.StatusPreconditionFailed {
		t.Errorf("stale: %d", got.Code)
	}
	if got := w.post("/plans/pro/preview/shadow", "editor", url.Values{"policy": {"none"}, "revision": {fmt.Sprint(now.DraftRevision)}}); got.Code != http.StatusConflict {
		t.Errorf("no such policy: %d", got.Code)
	}
	if got := w.post("/plans/pro/preview/shadow", "editor", url.Values{"policy": {"fresh"}, "revision": {fmt.Sprint(now.DraftRevision)}}); got.Code != http.StatusSeeOther {
		t.Errorf("%d", got.Code)
	}
	now, err = w.plans.Plan(t.Context(), "pro")
	must(t, err)
	if got := now.Draft.Policies()[4].Mode; got != enforcement.PolicyShadow {
		t.Errorf("its mode is %s", got)
	}
	// The page shows the part of the time range that is left, and not the selected range, if a publication
	// changes what every policy counts.
	d = now.Draft.Content()
	for i := range d.Policies {
		d.Policies[i].Match.Methods = []string{"PATCH"}
	}
	now, err = w.plans.SaveDraft(t.Context(), "pro", plans.New(d), now.DraftRevision)
	must(t, err)
	_, _, err = w.plans.Publish(t.Context(), "pro", plans.Publish{IfRevision: now.DraftRevision})
	must(t, err)
	says(t, "cut", w.get("/plans/pro/preview", "editor"), 200, []string{"UTC: the part of the last 24 hours that has counts"}, "The last 24 hours, ")
	// A plan without requests.
	_, err = w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	says(t, "no requests", w.get("/plans/gold/preview", "editor"), 200, []string{"No tenant of this plan sent a request"})
}

// planPages returns the pages of plans in each of their states. The text said is in every place
// that accepts a text.
func (w *world) planPages(t *testing.T, said string) map[string]reply {
	t.Helper()
	d := plans.Sample().Content()
	d.Name, d.Description = "n"+said, said
	d.Policies[0].Description = said
	d.Policies[0].Match.Attributes = map[string]string{"a" + said: "v" + said}
	d.Policies[0].CountBy = []string{"c" + said}
	p, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	before := p.DraftRevision
	_, err = w.plans.SaveDraft(t.Context(), "pro", plans.New(d), p.DraftRevision)
	must(t, err)
	p, err = w.plans.Plan(t.Context(), "pro")
	must(t, err)
	revision := fmt.Sprint(p.DraftRevision)
	_, form := filled(t, w.get("/plans/pro/edit/json", "owner").tree(t), "draft", "save")
	text := form.Get("json")
	mine := strings.Replace(text, `"quota": 5,`, `"quota": 6,`, 1)
	bad := fieldsOf(plans.New(d))
	for name, value := range map[string]string{
		"policies.0.slug": said, "policies.0.path": said, "policies.0.other_methods": said, "policies.0.mode": said, "policies.0.replaces.7": said,
		"policies.0.limits.0.name": said, "policies.0.limits.0.quota": said, "policies.0.limits.0.window": said, "policies.0.limits.0.algorithm": said,
	} {
		bad.Set(name, value)
	}
	redrawn := url.Values{}
	for name := range bad {
		redrawn.Set(name, bad.Get(name))
	}
	redrawn.Set("do", "policies.0.duplicate")
	jsonForm := func(revision, text, do string) url.Values {
		return url.Values{"revision": {revision}, "json": {text}, "do": {do}}
	}
	pages := map[string]reply{
		"list": w.get("/plans", "owner"), "search": w.get("/plans?q="+url.QueryEscape("none"+said), "owner"), "new": w.get("/plans/new?from="+url.QueryEscape(said), "owner"),
		"not made": w.post("/plans/new", "owner", url.Values{"slug": {said + " "}, "name": {said}, "from": {said}}),
		"plan":     w.get("/plans/pro", "owner"), "edit": w.get("/plans/pro/edit", "owner"), "json": w.get("/plans/pro/edit/json", "owner"),
		"faulty": w.post("/plans/pro/edit", "owner", bad), "redrawn": w.post("/plans/pro/edit", "owner", redrawn),
		"no json": w.post("/plans/pro/edit/json", "owner", jsonForm(revision, said, "save")), "no form": w.post("/plans/pro/edit/json", "owner", jsonForm(revision, said, "form")),
		"as form": w.post("/plans/pro/edit/json", "owner", jsonForm(revision, mine, "form")), "conflict": w.post("/plans/pro/edit/json", "owner", jsonForm(fmt.Sprint(before), mine, "save")),
		"diff": w.get("/plans/pro/diff?done=draft-saved", "viewer"), "publish": w.get("/plans/pro/publish", "owner"),
		"not published": w.post("/plans/pro/publish", "owner", url.Values{"revision": {"1"}, "note": {said}}), "rollout": w.get("/plans/pro/rollout?version=1", "viewer"),
		"history": w.get("/plans/pro/history", "viewer"), "version": w.get("/plans/pro/versions/1", "owner"), "back": w.get("/plans/pro/versions/1/publish", "owner"),
		"preview": w.get("/plans/pro/preview", "owner"), "not deleted": w.post("/plans/gold/delete", "owner", url.Values{"revision": {"1"}, "confirm": {said}}),
		"stale shadow": w.post("/plans/pro/preview/shadow", "owner", url.Values{"policy": {said}, "revision": {"1"}}),
		"viewer":       w.get("/plans/pro/edit", "viewer"), "a tenant's": w.get("/plans/pro", "acme-admin"), "nobody": w.get("/plans", ""),
	}
	// A note and a version with this text, for the next round.
	if done := w.post("/plans/pro/publish", "owner", url.Values{"revision": {revision}, "note": {said}}); done.Code != http.StatusSeeOther {
		t.Fatalf("publish: %d\n%s", done.Code, done.body)
	}
	latest, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	pages["noted"] = w.get("/plans/pro/history", "viewer")
	pages["latest"] = w.get(fmt.Sprintf("/plans/pro/versions/%d", latest.Latest), "owner")
	must(t, w.store.PutNode(t.Context(), nodes.Node{ID: uuid.NewSHA1(uuid.Nil, []byte("a")).String(), Name: said, At: time.Now(), StartedAt: time.Now()}))
	pages["rolling out"] = w.get("/plans/pro/rollout", "viewer")
	return pages
}

// Every page of plans passes the same checks as all other pages.
func TestPlanPagesAreStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	want := map[string]int{
		"not made": 422, "faulty": 422, "no json": 422, "no form": 422, "conflict": 409, "not published": 409, "not deleted": 422, "stale shadow": 409,
		"viewer": 403, "a tenant's": 403, "nobody": 303,
	}
	for name, page := range w.planPages(t, "said") {
		if status := max(want[name], 200); page.Code != status {
			t.Errorf("%s: %d, want %d", name, page.Code, status)
		}
		if page.Header().Get("Content-Security-Policy") != policy || page.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the headers are %v", name, page.Header())
		}
		if page.Code != http.StatusSeeOther {
			strict(t, name, page.tree(t))
		}
	}
}

// For every text in plans, their pages have the same elements.
func TestTextsOfPlansAreText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("pro", plans.Sample().Content(), "acme")
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	w.planPages(t, "plain")
	var want map[string]string
	for n, payload := range append([]string{"plain <x"}, payloads...) {
		if n%4 != 0 { // testing every page with every text takes too long; other tests check names
			continue
		}
		got := map[string]string{}
		for name, page := range w.planPages(t, payload) {
			tree := page.tree(t)
			strict(t, name, tree)
			if name == "search" || name == "list" || name == "plan" || name == "preview" || name == "rolling out" {
				got[name] = shape(tree)
			}
			for node := range tree.Descendants() {
				if node.Type == html.ElementNode && (node.Data == "script" && !strings.HasPrefix(attr(node, "src"), "/static/") || node.Data == "iframe" || node.Data == "svg" && attr(node, "class") != "icon" || node.Data == "img" && attr(node, "alt") != "") {
					t.Errorf("%q on %s made a <%s>", payload, name, node.Data)
				}
			}
		}
		if want == nil {
			want = got
			continue
		}
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%q on the page %s:\n%s\nwant\n%s", payload, name, got[name], want[name])
			}
		}
	}
}
