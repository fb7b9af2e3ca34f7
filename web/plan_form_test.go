package web_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// filled returns what a browser sends for the form with an id and a button with a value of
// do.
func filled(t interface{ Fatalf(string, ...any) }, page *html.Node, id, do string) (action string, out url.Values) {
	var form *html.Node
	for n := range page.Descendants() {
		if n.Data == "form" && attr(n, "id") == id {
			form = n
		}
	}
	if form == nil {
		t.Fatalf("there is no form %q", id)
	}
	out = url.Values{}
	pressed := false
	for n := range form.Descendants() {
		name := attr(n, "name")
		switch {
		case n.Type != html.ElementNode || name == "":
		case n.Data == "button":
			if attr(n, "value") == do {
				out.Add(name, do)
				pressed = true
			}
		case n.Data == "input" && (attr(n, "type") == "checkbox" || attr(n, "type") == "radio"):
			if has(n, "checked") {
				out.Add(name, attr(n, "value"))
			}
		case n.Data == "input" && attr(n, "type") == "hidden":
			out.Add(name, crlf(attr(n, "value")))
		case n.Data == "input":
			out.Add(name, strings.NewReplacer("\r", "", "\n", "").Replace(attr(n, "value")))
		case n.Data == "textarea":
			text := ""
			if n.FirstChild != nil {
				text = n.FirstChild.Data
			}
			out.Add(name, crlf(text))
		case n.Data == "select":
			chosen := ""
			for o := range n.Descendants() {
				if o.Data == "option" && (has(o, "selected") || chosen == "" && !has(n, "found")) {
					chosen = attr(o, "value")
					if has(o, "selected") {
						n.Attr = append(n.Attr, html.Attribute{Key: "found"})
					}
				}
			}
			out.Add(name, chosen)
		}
	}
	if !pressed {
		t.Fatalf("the form %s has no button %q", id, do)
	}
	return attr(form, "action"), out
}

// crlf returns a text with line breaks as browsers send them.
func crlf(s string) string {
	return strings.ReplaceAll(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s), "\n", "\r\n")
}

// genDocument draws a valid document with texts that are difficult for forms.
func genDocument() *rapid.Generator[plans.Content] {
	name := rapid.OneOf(rapid.StringMatching(`[a-z]{1,8}`), rapid.StringMatching(`[ "'<>&,;=%+.A-Za-zé{}\[\]/~-]{1,12}`))
	text := rapid.OneOf(rapid.StringMatching(`[\n\t "'<>&a-zé]{0,30}`), rapid.Just(""))
	value := rapid.OneOf(name, rapid.StringMatching(`["\n\r\t\\ a-z<]{1,10}`))
	return rapid.Custom(func(t *rapid.T) plans.Content {
		slugs := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?`), 0, 5, rapid.ID[string]).Draw(t, "slugs")
		d := plans.Content{Name: "n" + name.Draw(t, "name"), Description: text.Draw(t, "description")}
		for i, slug := range slugs {
			p := plans.Policy{
				Slug: slug, Description: text.Draw(t, "about"),
				Missing: rapid.SampledFrom([]enforcement.Missing{enforcement.MissingShared, enforcement.MissingSkip, enforcement.MissingDeny}).Draw(t, "missing"),
				Mode: rapid.SampledFrom([]enforcement.PolicyMode{
					enforcement.PolicyEnforce, enforcement.PolicyDegrade, enforcement.PolicyDelay, enforcement.PolicyShadow, enforcement.PolicyOff,
				}).Draw(t, "mode"),
				OnFailure: rapid.SampledFrom([]enforcement.OnFailure{enforcement.OnFailureLocal, enforcement.OnFailureOpen, enforcement.OnFailureClosed}).Draw(t, "failure"),
				CountBy:   rapid.SliceOfNDistinct(name, 0, 4, rapid.ID[string]).Draw(t, "count by"),
				Replaces:  rapid.Permutation(slugs[:i]).Draw(t, "replaces")[:rapid.IntRange(0, i).Draw(t, "how many")],
				Match: plans.Match{
					Methods:    rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PURGE", "M-SEARCH", "DELETE", "!#$%&'*+-.^_`|~"}), 0, 5, rapid.ID[string]).Draw(t, "methods"),
					Path:       rapid.SampledFrom([]string{"", "*", "/", "/a/b", "/api/*", "/u/{id}", "/ü%20x/{a-b}/*", "/a+b&c=d"}).Draw(t, "path"),
					Attributes: rapid.MapOfN(name, value, 0, 4).Draw(t, "attributes"),
				},
			}
			if p.DelayMS = rapid.SampledFrom([]int64{0, 1, 2500, enforcement.MaxPolicyDelay}).Draw(t, "delay"); p.UselessDelay() {
				p.DelayMS = 0
			}
			if cost := rapid.SampledFrom([]int64{-1, 0, 1, 7, enforcement.MaxCost}).Draw(t, "cost"); cost >= 0 {
				p.Cost = &cost
			}
			if from := rapid.OneOf(rapid.Just(""), name).Draw(t, "cost from"); !slices.Contains(p.CountBy, from) {
				p.CostFrom = from
				if rapid.Bool().Draw(t, "reservations") {
					p.ReservationExpiry, p.ReservationEstimate = enforcement.RefundExpired, enforcement.ClampEstimate
				}
			}
			delete(p.Match.Attributes, "ip")
			for k := range rapid.IntRange(1, 3).Draw(t, "limits") {
				p.Limits = append(p.Limits, genLimit(t, k))
			}
			d.Policies = append(d.Policies, p)
		}
		made := plans.New(d)
		if err := made.Validate(); err != nil {
			t.Skip(err) // for example, two attributes that become equal
		}
		return made.Content()
	})
}

func genLimit(t *rapid.T, k int) enforcement.Limit {
	l := enforcement.Limit{
		Name:      rapid.SampledFrom([]string{"", fmt.Sprintf("n%d-", k)}).Draw(t, "limit"),
		Algorithm: rapid.SampledFrom([]enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA}).Draw(t, "algorithm"),
		Window:    rapid.SampledFrom([]time.Duration{time.Millisecond, 1500 * time.Millisecond, 90 * time.Second, time.Minute, 24 * time.Hour, enforcement.MaxWindow}).Draw(t, "window"),
		Quota:     rapid.Int64Range(0, enforcement.MaxLog).Draw(t, "quota"),
	}
	l.WarnAt, _ = enforcement.NewWarnAt(rapid.SliceOfNDistinct(rapid.Int64Range(1, 100), 0, enforcement.MaxWarnAt, rapid.ID[int64]).Draw(t, "warn at"))
	l.Durability = rapid.SampledFrom([]enforcement.Durability{enforcement.DurableByWindow, enforcement.NotDurable, enforcement.Durable}).Draw(t, "durable")
	if l.Algorithm == enforcement.SlidingWindowLog && l.Durability == enforcement.Durable {
		l.Durability = enforcement.NotDurable
	}
	l.CarryOver = rapid.SampledFrom([]enforcement.CarryOver{
		enforcement.CarryKeep, enforcement.CarryReset, enforcement.CarryProportional, enforcement.CarryAdditive,
	}).Draw(t, "carry over")
	if l.Algorithm.Bucket() {
		l.Quota = rapid.Int64Range(0, enforcement.MaxQuota).Draw(t, "quota")
		l.Burst = rapid.SampledFrom([]int64{0, 1, 1234, enforcement.MaxQuota}).Draw(t, "burst")
	}
	if l.Algorithm.Windowed() {
		l.Anchor = rapid.SampledFrom([]enforcement.Anchor{enforcement.FirstHit, enforcement.Clock}).Draw(t, "anchor")
	}
	if l.Algorithm == enforcement.FixedWindow && rapid.Bool().Draw(t, "calendar") {
		l.Period = rapid.SampledFrom([]enforcement.Period{enforcement.Day, enforcement.Week, enforcement.Month, enforcement.Quarter, enforcement.Year}).Draw(t, "period")
		l.Window, l.Anchor = l.Period.Longest(), l.Period.DefaultAnchor()
		if l.Period == enforcement.Week {
			l.Anchor = rapid.SampledFrom([]enforcement.Anchor{enforcement.Monday, enforcement.Wednesday, enforcement.Sunday}).Draw(t, "anchor")
		}
		l.MaxRollover = rapid.SampledFrom([]int64{0, 1, 2_500, enforcement.MaxRollover}).Draw(t, "rollover")
	}
	return l
}

// A draft that is shown in the form and sent back is unchanged. So is a draft in the JSON
// editor, and one that is shown in both, one after the other.
func TestDraftsComeBackAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		d := genDocument().Draw(rt, "document")
		if p, err = w.plans.Plan(t.Context(), "gold"); err != nil {
			rt.Fatal(err)
		}
		if p, err = w.plans.SaveDraft(t.Context(), "gold", plans.New(d), p.DraftRevision); err != nil {
			rt.Fatal(err)
		}
		saved := func(what string) {
			now, err := w.plans.Plan(t.Context(), "gold")
			if err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(d, now.Draft.Content()); diff != "" {
				rt.Fatalf("%s changed the draft (-was +is):\n%s", what, diff)
			}
			p = now
		}
		send := func(page reply, do string) reply {
			action, f := filled(rt, page.tree(t), "draft", do)
			for name := range f {
				if name != "do" && name != "revision" && name != "json" && name != "name" && name != "description" && !strings.HasPrefix(name, "policies.") {
					rt.Fatalf("the form has a field %q that is not in the grammar", name)
				}
			}
			got := w.post(action, "editor", f)
			if got.Code != http.StatusOK && got.Code != http.StatusSeeOther {
				rt.Fatalf("%s: %d\n%s", do, got.Code, got.body)
			}
			return got
		}
		send(w.get("/plans/gold/edit", "editor"), "save")
		saved("the form")
		if rapid.IntRange(0, 3).Draw(rt, "also by way of the JSON") > 0 {
			return // each request renders and parses a whole page
		}
		text := send(w.get("/plans/gold/edit", "editor"), "json")
		send(send(text, "form"), "save")
		saved("the form, the JSON and the form")
		send(w.get("/plans/gold/edit/json", "editor"), "save")
		saved("the JSON")
		// The form and the JSON editor save the same document.
		_, direct := filled(rt, w.get("/plans/gold/edit/json", "editor").tree(t), "draft", "save")
		_, through := filled(rt, text.tree(t), "draft", "save")
		if direct.Get("json") != through.Get("json") {
			rt.Fatalf("by way of the form the JSON is\n%s\ndirectly\n%s", through.Get("json"), direct.Get("json"))
		}
	})
}

// The first path with a literal segment has a hint: if the back end folds case or ignores what follows a semicolon,
// callers can avoid the policy. It is in the page of the editor, and follows what is typed.
func TestSpellingsOfAPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	page := w.get("/plans/gold/edit", "editor")
	first := byID(page.tree(t), "policies.0.path")
	if first == nil || !strings.Contains(attr(first, "aria-describedby"), "policies.0.path-hint") ||
		!strings.Contains(text(byID(page.tree(t), "policies.0.path-hint")), "if your back end serves /LOGIN or /login;x like /login") {
		t.Errorf("the editor of a saved plan has no hint at the first path: %v", first)
	}
	_, typed := filled(t, page.tree(t), "draft", "save")
	for paths, want := range map[string]int{
		"/v1/login /a/* /b": 0, "* /a/{x} /b": 1, "/{x} /{x}/* /v1": 2, "* /{x} ": -1, "/a* {b /c": 2,
	} {
		for i, path := range append(strings.Split(paths, " "), "*")[:4] {
			typed.Set(fmt.Sprintf("policies.%d.path", i), path)
		}
		typed.Set("do", "policies.0.add-limit")
		page := w.post("/plans/gold/edit", "editor", typed)
		got := -1
		for n := range page.tree(t).Descendants() {
			var i int
			if _, err := fmt.Sscanf(attr(n, "id"), "policies.%d.path-hint", &i); err != nil {
				continue
			}
			for d := range n.Descendants() {
				if strings.Contains(d.Data, "/login;x") {
					if got >= 0 {
						t.Errorf("%s: twice", paths)
					}
					got = i
				}
			}
		}
		if got != want {
			t.Errorf("%s: the hint is at %d, want %d (%d)", paths, got, want, page.Code)
		}
	}
}

// A person who types month gets a calendar month, for any other choice in the list of
// anchors. The page of the tenant shows the end of the window in the tenant's time zone.
func TestCalendarQuotaInTheEditor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	_, typed := filled(t, w.get("/plans/gold/edit", "editor").tree(t), "draft", "save")
	for name, value := range map[string]string{"algorithm": "fixed_window", "quota": "10000", "window": "month", "burst": ""} {
		typed.Set("policies.3.limits.0."+name, value)
	}
	if got := w.post("/plans/gold/edit", "editor", typed); got.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", got.Code, got.body)
	}
	p, err := w.plans.Plan(t.Context(), "gold")
	must(t, err)
	saved := p.Draft.Policies()[3].Limits[0]
	if saved.Period != enforcement.Month || saved.Anchor != enforcement.ByCalendar {
		t.Errorf("saved as %+v", saved)
	}
	if text := words(t, w.get("/plans/gold", "editor")); !strings.Contains(text, "10,000 per calendar month") {
		t.Errorf("the plan: %s", text)
	}
	typed.Set("policies.3.limits.0.algorithm", "gcra")
	if got := w.post("/plans/gold/edit", "editor", typed); !strings.Contains(words(t, got), "only fixed_window has calendar windows") {
		t.Errorf("gcra: %d", got.Code)
	}

	w.publish("monthly", plans.Content{Name: "Monthly", Policies: []plans.Policy{{Slug: "quota", Limits: []enforcement.Limit{saved}}}}, "acme")
	x := w.tenant("acme")
	x.Document.TimeZone, x.Document.BillingAnchorDay = "Europe/Berlin", 1
	_, err = w.tenants.UpdateTenant(t.Context(), "acme", x.Document, x.Revision)
	must(t, err)
	must(t, w.watcher.Refresh(t.Context()))
	if d := w.decide("acme", enforcement.Check{Method: "GET", Path: "/", Cost: 9_000}); !d[0].Allowed {
		t.Fatalf("%+v", d[0])
	}
	if text := words(t, w.get("/tenants/acme/usage/quota", "editor")); !strings.Contains(text, "resets on 1 Dec, 00:00 Europe/Berlin") {
		t.Errorf("the usage: %s", text)
	}
}

// Issue 13, 1.2: with 100 policies, the next one is added without the others: the script sends their slugs, and gets the
// fields of one policy.
func TestNewPolicyOfAHundred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := plans.Content{Name: "Large"}
	for i := range 100 {
		d.Policies = append(d.Policies, plans.Policy{
			Slug: "p" + strconv.Itoa(i), Match: plans.Match{Path: fmt.Sprintf("/v1/%d/*", i)},
			Limits: []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Minute}},
		})
	}
	p, err := w.plans.CreatePlan(t.Context(), "large", plans.New(d))
	must(t, err)
	f := url.Values{"revision": {strconv.FormatInt(p.DraftRevision, 10)}, "do": {"new-policy"}}
	for i := range d.Policies {
		f.Set(fmt.Sprintf("policies.%d.slug", i), d.Policies[i].Slug)
	}
	got := w.post("/plans/large/edit", "editor", f)
	tree := got.tree(t)
	var names []string
	for n := range tree.Descendants() {
		if name := attr(n, "name"); strings.HasPrefix(name, "policies.") {
			names = append(names, name)
		}
		if has(n, "autofocus") && attr(n, "name") != "policies.100.slug" {
			t.Errorf("%s has the focus", attr(n, "name"))
		}
	}
	if got.Code != http.StatusOK || len(names) < 20 || len(f.Encode()) > 4_000 || len(got.body) > 40_000 {
		t.Errorf("%d: %d bytes sent, %d bytes with %d fields returned", got.Code, len(f.Encode()), len(got.body), len(names))
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "policies.100.") {
			t.Errorf("the field %s is of another policy", name)
		}
	}
	for i := 100; i <= plans.MaxPolicies; i++ {
		f.Set(fmt.Sprintf("policies.%d.slug", i), fmt.Sprintf("p%d", i))
	}
	if full := w.post("/plans/large/edit", "editor", f); full.Code != http.StatusBadRequest {
		t.Errorf("a policy too many: %d", full.Code)
	}
}

// Every button changes only what it names, and keeps all entered values.
func TestDraftButtons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	_, typed := filled(t, w.get("/plans/gold/edit", "editor").tree(t), "draft", "save")
	typed.Set("name", "Not saved <b>")
	typed.Set("policies.2.limits.0.quota", "many")
	typed.Set("policies.0.other_methods", "purge  x y")
	slugs := func(f url.Values) string {
		var list []string
		for i := 0; f.Has(fmt.Sprintf("policies.%d.slug", i)); i++ {
			list = append(list, f.Get(fmt.Sprintf("policies.%d.slug", i)))
		}
		return strings.Join(list, " ")
	}
	const all = "login-per-ip api-per-user search-per-user tenant-total"
	for do, c := range map[string]struct{ slugs, quota, focus string }{
		"add-policy":                 {all + " ", "policies.2.limits.0.quota", "policies.4.slug"},
		"policies.2.up":              {"login-per-ip search-per-user api-per-user tenant-total", "policies.1.limits.0.quota", ""},
		"policies.0.down":            {"api-per-user login-per-ip search-per-user tenant-total", "policies.2.limits.0.quota", ""},
		"policies.1.duplicate":       {"login-per-ip api-per-user api-per-user-copy search-per-user tenant-total", "policies.3.limits.0.quota", "policies.2.slug"},
		"policies.1.delete":          {"login-per-ip search-per-user tenant-total", "policies.1.limits.0.quota", ""},
		"policies.2.add-limit":       {all, "policies.2.limits.0.quota", "policies.2.limits.1.quota"},
		"policies.1.add-attribute":   {all, "policies.2.limits.0.quota", "policies.1.attributes.1.name"},
		"policies.1.add-count-by":    {all, "policies.2.limits.0.quota", "policies.1.count_by.1"},
		"policies.1.limits.0.delete": {all, "policies.2.limits.0.quota", ""},
	} {
		f := url.Values{}
		for name := range typed {
			f.Set(name, typed.Get(name))
		}
		f.Set("do", do)
		page := w.post("/plans/gold/edit", "editor", f)
		if page.Code != http.StatusOK {
			t.Errorf("%s: %d\n%s", do, page.Code, page.body)
			continue
		}
		tree := page.tree(t)
		strict(t, do, tree)
		_, got := filled(t, tree, "draft", "save")
		focus := ""
		for n := range tree.Descendants() {
			if has(n, "autofocus") {
				focus += attr(n, "id")
			}
		}
		if slugs(got) != c.slugs || got.Get(c.quota) != "many" || got.Get("name") != "Not saved <b>" || focus != c.focus {
			t.Errorf("%s: the policies %q, the quota %q, the name %q, the focus %q", do, slugs(got), got.Get(c.quota), got.Get("name"), focus)
		}
		if !strings.Contains(page.body, "purge  x y") {
			t.Errorf("%s: what was typed is lost", do)
		}
	}
	now, err := w.plans.Plan(t.Context(), "gold")
	must(t, err)
	if diff := cmp.Diff(plans.Sample().Content(), now.Draft.Content()); diff != "" {
		t.Errorf("a button saved:\n%s", diff)
	}
	for _, do := range []string{"policies.4.up", "policies.0.up", "policies.3.down", "policies.01.up", "policies.0.limits.1.delete", "drop", "policies.-1.delete", "policies.0.x", "policies"} {
		typed.Set("do", do)
		if got := w.post("/plans/gold/edit", "editor", typed); got.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", do, got.Code)
		}
	}
}

// A deleted policy returns to its place with its typed values, also after other buttons.
func TestUndoOfADeletedPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	_, f := filled(t, w.get("/plans/gold/edit", "editor").tree(t), "draft", "save")
	f.Set("policies.1.limits.0.quota", "many")
	f.Set("policies.1.description", "a <b>&policies.2.slug=x")
	before := maps.Clone(f)
	for _, do := range []string{"policies.1.delete", "policies.0.add-attribute", "undo-delete"} {
		f.Set("do", do)
		page := w.post("/plans/gold/edit", "editor", f)
		if _, f = filled(t, page.tree(t), "draft", "save"); (f.Get("removed") != "") != (do != "undo-delete") {
			t.Errorf("%s: %q is kept as removed", do, f.Get("removed"))
		}
	}
	for name, values := range before {
		if name != "do" && !slices.Equal(f[name], values) {
			t.Errorf("%s: %q, want %q", name, f[name], values)
		}
	}
	for _, bad := range []string{"", "%zz", "policies.0.slug=a&policies.1.slug=b"} {
		f.Set("do", "undo-delete")
		f.Set("removed", bad)
		if got := w.post("/plans/gold/edit", "editor", f); got.Code != http.StatusBadRequest {
			t.Errorf("undo of %q: %d", bad, got.Code)
		}
	}
}

// A warning about one field is at that field, not above the form.
func TestWarningsAreAtTheirFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	page := w.get("/plans/busy/edit", "owner")
	hint := byID(page.tree(t), "policies.2.limits.0.algorithm-hint")
	if hint == nil || !strings.Contains(text(hint), "A fixed_window can allow up to 2 × 2") || strings.Contains(page.body, "Check these points first") {
		t.Errorf("hint %v\n%s", hint, page.body)
	}
}

// If a policy is renamed, the policies that name it as replaced are updated.
func TestRenamedPolicyIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := plans.Sample().Content()
	d.Policies[0].Replaces = []string{"tenant-total"}
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.New(d))
	must(t, err)
	_, f := filled(t, w.get("/plans/gold/edit", "editor").tree(t), "draft", "save")
	f.Set("policies.3.slug", "ceiling")
	if got := w.post("/plans/gold/edit", "editor", f); got.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", got.Code, got.body)
	}
	now, err := w.plans.Plan(t.Context(), "gold")
	must(t, err)
	if got := now.Draft.Policies()[0].Replaces; !slices.Equal(got, []string{"ceiling"}) {
		t.Errorf("it replaces %q", got)
	}
}

// Every error that package plans can find in a document has a field or a group in the form,
// which shows it.
func TestFaultsFindTheirField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	long := strings.Repeat("x", 3000)
	below, many := int64(-1), map[string]string{}
	for i := range 20 {
		many[fmt.Sprint("a", i)] = "x"
	}
	policy := func(change func(p *plans.Policy)) func(*plans.Content) {
		return func(d *plans.Content) { change(&d.Policies[1]) }
	}
	limit := func(change func(l *enforcement.Limit)) func(*plans.Content) {
		return func(d *plans.Content) { change(&d.Policies[1].Limits[0]) }
	}
	const in = "policies.1"
	for name, c := range map[string]struct {
		edit  func(*plans.Content)
		field string
	}{
		"name":            {func(d *plans.Content) { d.Name = "" }, "name"},
		"description":     {func(d *plans.Content) { d.Description = long }, "description"},
		"slug":            {policy(func(p *plans.Policy) { p.Slug = "A B" }), in + ".slug"},
		"twice":           {policy(func(p *plans.Policy) { p.Slug = "login-per-ip" }), in + ".slug"},
		"about":           {policy(func(p *plans.Policy) { p.Description = long }), in + ".description"},
		"methods":         {policy(func(p *plans.Policy) { p.Match.Methods = []string{"GET", "É"} }), in + ".methods"},
		"many methods":    {policy(func(p *plans.Policy) { p.Match.Methods = strings.Fields(strings.Repeat("X ", 17)) }), in + ".methods"},
		"path":            {policy(func(p *plans.Policy) { p.Match.Path = "api" }), in + ".path"},
		"attribute":       {policy(func(p *plans.Policy) { p.Match.Attributes = map[string]string{"ip": "x"} }), in + ".attributes.0.value"},
		"empty value":     {policy(func(p *plans.Policy) { p.Match.Attributes = map[string]string{"b": "1", "c": ""} }), in + ".attributes.1.value"},
		"empty name":      {policy(func(p *plans.Policy) { p.Match.Attributes = map[string]string{"": "1"} }), in + ".attributes.0.name"},
		"slash":           {policy(func(p *plans.Policy) { p.Match.Attributes = map[string]string{"ip/64": "1"} }), in + ".attributes.0.value"},
		"long name":       {policy(func(p *plans.Policy) { p.Match.Attributes = map[string]string{long: "1"} }), in + ".attributes.0.name"},
		"many attributes": {policy(func(p *plans.Policy) { p.Match.Attributes = many }), in + ".attributes"},
		"count by":        {policy(func(p *plans.Policy) { p.CountBy = []string{"user", "ip/48"} }), in + ".count_by.1"},
		"many count by":   {policy(func(p *plans.Policy) { p.CountBy = strings.Fields("a b c d e f g h i") }), in + ".count_by"},
		"missing":         {policy(func(p *plans.Policy) { p.Missing = "x" }), in + ".missing"},
		"mode":            {policy(func(p *plans.Policy) { p.Mode = "x" }), in + ".mode"},
		"delay":           {policy(func(p *plans.Policy) { p.Mode, p.DelayMS = enforcement.PolicyDegrade, 5 }), in + ".delay_ms"},
		"failure":         {policy(func(p *plans.Policy) { p.OnFailure = "x" }), in + ".on_failure"},
		"consistency":     {policy(func(p *plans.Policy) { p.Consistency = "x" }), in + ".consistency"},
		"cost":            {policy(func(p *plans.Policy) { p.Cost = &below }), in + ".cost"},
		"cost from":       {policy(func(p *plans.Policy) { p.CostFrom = "ip" }), in + ".cost_from"},
		"replaces itself": {policy(func(p *plans.Policy) { p.Replaces = []string{"api-per-user"} }), in + ".replaces"},
		"replaces none":   {policy(func(p *plans.Policy) { p.Replaces = []string{"none"} }), in + ".replaces"},
		"circle": {func(d *plans.Content) {
			d.Policies[1].Replaces, d.Policies[0].Replaces = []string{"login-per-ip"}, []string{"api-per-user"}
		}, in + ".replaces"},
		"no limits":   {policy(func(p *plans.Policy) { p.Limits = nil }), in + ".limits"},
		"many limits": {policy(func(p *plans.Policy) { p.Limits = slices.Repeat(p.Limits, 11) }), in + ".limits"},
		"limit twice": {policy(func(p *plans.Policy) { p.Limits = slices.Repeat(p.Limits, 2) }), in + ".limits.1.name"},
		"limit name":  {limit(func(l *enforcement.Limit) { l.Name = "A" }), in + ".limits.0.name"},
		"algorithm":   {limit(func(l *enforcement.Limit) { l.Algorithm = 9 }), in + ".limits.0.algorithm"},
		"quota":       {limit(func(l *enforcement.Limit) { l.Quota = -1 }), in + ".limits.0.quota"},
		"large quota": {limit(func(l *enforcement.Limit) { l.Quota = enforcement.MaxQuota + 1 }), in + ".limits.0.quota"},
		"window":      {limit(func(l *enforcement.Limit) { l.Window = 2 * enforcement.MaxWindow }), in + ".limits.0.window"},
		"durable": {limit(func(l *enforcement.Limit) {
			l.Algorithm, l.Durability = enforcement.SlidingWindowLog, enforcement.Durable
		}), in + ".limits.0.durable"},
		"warn at":      {limit(func(l *enforcement.Limit) { l.WarnAt[0] = 101 }), in + ".limits.0.warn_at"},
		"rollover":     {limit(func(l *enforcement.Limit) { l.MaxRollover = 5 }), in + ".limits.0.max_rollover"},
		"burst":        {limit(func(l *enforcement.Limit) { l.Burst = 5 }), in + ".limits.0.burst"},
		"anchor":       {limit(func(l *enforcement.Limit) { l.Algorithm, l.Anchor = enforcement.GCRA, enforcement.Clock }), in + ".limits.0.anchor"},
		"large burst":  {limit(func(l *enforcement.Limit) { l.Algorithm, l.Burst = enforcement.GCRA, enforcement.MaxQuota+1 }), in + ".limits.0.burst"},
		"log's quota":  {limit(func(l *enforcement.Limit) { l.Algorithm, l.Quota = enforcement.SlidingWindowLog, 10_001 }), in + ".limits.0.quota"},
		"many at once": {func(d *plans.Content) { d.Name, d.Policies[1].Slug, d.Policies[1].Limits[0].Quota = "", "", -1 }, in + ".slug"},
	} {
		d := plans.Sample().Content()
		c.edit(&d)
		// If the form is sent, the page shows the errors at the same fields.
		page := w.post("/plans/gold/edit", "editor", fieldsOf(plans.New(d)))
		if page.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", name, page.Code)
			continue
		}
		tree := page.tree(t)
		strict(t, name, tree)
		ids, links := map[string]*html.Node{}, map[string]bool{}
		for n := range tree.Descendants() {
			if id := attr(n, "id"); id != "" {
				ids[id] = n
			}
			if n.Data == "a" {
				links[attr(n, "href")] = true
			}
		}
		if !links["#"+c.field] {
			t.Errorf("%s: no link leads to %s (%v)", name, c.field, links)
		}
		for link := range links {
			if field, local := strings.CutPrefix(link, "#"); local && ids[field] == nil {
				t.Errorf("%s: the page has no place %s", name, field)
			}
		}
		if card := ids[in]; strings.HasPrefix(c.field, in) && (card == nil || !has(card, "open")) {
			t.Errorf("%s: the policy at fault is not open", name)
		}
		if field := ids[c.field]; field != nil && field.Data != "fieldset" && field.Data != "details" && attr(field, "aria-invalid") != "true" {
			t.Errorf("%s: the field %s is not marked", name, c.field)
		}
	}
}

func TestWideForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	for name, c := range map[string]struct {
		change func(f url.Values)
		want   int
	}{
		"unknown":      {func(f url.Values) { f.Set("admin", "1") }, 400},
		"unknown row":  {func(f url.Values) { f.Set("policies.0.limits.0.cost", "1") }, 400},
		"no number":    {func(f url.Values) { f.Set("policies.x.slug", "1") }, 400},
		"leading zero": {func(f url.Values) { f.Set("policies.00.slug", "1") }, 400},
		"far away":     {func(f url.Values) { f.Set("policies.999999999.slug", "1") }, 400},
		"too deep":     {func(f url.Values) { f.Set("policies.0.count_by.0.name", "1") }, 400},
		"twice":        {func(f url.Values) { f.Add("name", "x") }, 400},
		"not UTF-8":    {func(f url.Values) { f.Set("name", "\xff") }, 400},
		"no revision":  {func(f url.Values) { f.Del("revision") }, 400},
		"large":        {func(f url.Values) { f.Set("description", strings.Repeat("x", web.MaxWideForm)) }, 413},
		"many fields": {func(f url.Values) {
			for i := range 200 {
				for k := range 50 {
					f.Set(fmt.Sprintf("policies.%d.count_by.%d", i, k), "")
				}
			}
		}, 413},
	} {
		_, f := filled(t, w.get("/plans/gold/edit", "editor").tree(t), "draft", "save")
		c.change(f)
		got := w.post("/plans/gold/edit", "editor", f)
		if got.Code != c.want && !(name == "many fields" && got.Code == 400) {
			t.Errorf("%s: %d, want %d", name, got.Code, c.want)
		}
	}
}

// The largest plan that the API accepts can be edited as JSON. The text in the editor is
// indented and contains all default values.
func TestEditFullPlanAsJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := plans.Content{Name: "Full"}
	for i := range plans.MaxPolicies {
		d.Policies = append(d.Policies, plans.Policy{
			Slug: "p" + strconv.Itoa(i), Description: strings.Repeat("x", 700), Match: plans.Match{Path: fmt.Sprintf("/v1/%d/*", i)},
			Limits: []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Minute}},
		})
	}
	if text, err := plans.New(d).MarshalJSON(); err != nil || len(text) < plans.MaxBytes*9/10 || len(text) > plans.MaxBytes {
		t.Fatalf("%d bytes, error %v", len(text), err)
	}
	p, err := w.plans.CreatePlan(t.Context(), "full", plans.New(d))
	must(t, err)
	if got := w.get("/plans/full/edit", "editor"); got.Code != 200 || !strings.Contains(got.body, "too large for a form") {
		t.Errorf("the form: %d", got.Code)
	}
	_, f := filled(t, w.get("/plans/full/edit/json", "editor").tree(t), "draft", "save")
	f.Set("json", strings.Replace(f.Get("json"), `"Full"`, `"Fuller"`, 1))
	got := w.post("/plans/full/edit/json", "editor", f)
	if now, err := w.plans.Plan(t.Context(), p.ID); got.Code != 303 || err != nil || now.Draft.Name() != "Fuller" || len(now.Draft.Policies()) != plans.MaxPolicies {
		t.Errorf("saved: %d %.300s, %v", got.Code, got.body, err)
	}
	f.Set("json", strings.Repeat(" ", web.MaxPlanForm)+"{}")
	if got := w.post("/plans/full/edit/json", "editor", f); got.Code != 413 {
		t.Errorf("more than a form may have: %d", got.Code)
	}
	// If there are many errors, only the first ones are shown.
	f.Set("json", `{"name":"x","policies":[`+strings.Repeat(`{"slug":"","limits":[]},`, 99)+`{"slug":"","limits":[]}]}`)
	if got := w.post("/plans/full/edit/json", "editor", f); got.Code != 422 || !strings.Contains(got.body, "more.") || strings.Count(got.body, "Line 1") > 50 {
		t.Errorf("many faults: %d, %d lines", got.Code, strings.Count(got.body, "Line 1"))
	}
}

// fieldsOf returns a plan in the form in which a browser sends it.
func fieldsOf(d plans.Document) url.Values {
	v := url.Values{"revision": {"1"}, "do": {"save"}, "name": {d.Name()}, "description": {d.Description()}}
	for i, p := range d.Policies() {
		at, cost := fmt.Sprintf("policies.%d.", i), ""
		if p.Cost != nil {
			cost = strconv.FormatInt(*p.Cost, 10)
		}
		for name, value := range map[string]string{
			"cost": cost, "cost_from": p.CostFrom, "delay_ms": map[bool]string{true: strconv.FormatInt(p.DelayMS, 10)}[p.DelayMS != 0],
			"reservation_expiry": string(p.ReservationExpiry), "reservation_estimate": string(p.ReservationEstimate),
			"was": p.Slug, "slug": p.Slug, "description": p.Description, "path": p.Match.Path, "other_methods": "",
			"missing": string(p.Missing), "mode": string(p.Mode), "on_failure": string(p.OnFailure), "consistency": string(p.Consistency),
		} {
			v.Set(at+name, value)
		}
		for list, values := range map[string][]string{"methods": p.Match.Methods, "count_by": p.CountBy, "replaces": p.Replaces} {
			for k, value := range values {
				v.Set(fmt.Sprintf("%s%s.%d", at, list, k), value)
			}
		}
		for k, name := range slices.Sorted(maps.Keys(p.Match.Attributes)) {
			v.Set(fmt.Sprintf("%sattributes.%d.name", at, k), name)
			v.Set(fmt.Sprintf("%sattributes.%d.value", at, k), p.Match.Attributes[name])
		}
		for k, l := range p.Limits {
			burst, rollover := "", ""
			if l.Burst != 0 {
				burst = strconv.FormatInt(l.Burst, 10)
			}
			if l.MaxRollover != 0 {
				rollover = strconv.FormatInt(l.MaxRollover, 10)
			}
			for name, value := range map[string]string{
				"name": l.Name, "algorithm": l.Algorithm.String(), "quota": strconv.FormatInt(l.Quota, 10),
				"window": enforcement.FormatWindow(l.Window), "burst": burst, "anchor": l.Anchor.String(), "warn_at": l.WarnAt.String(),
				"durable":    map[enforcement.Durability]string{enforcement.Durable: "true", enforcement.NotDurable: "false"}[l.Durability],
				"carry_over": l.CarryOver.String(), "max_rollover": rollover,
			} {
				v.Set(fmt.Sprintf("%slimits.%d.%s", at, k, name), value)
			}
		}
	}
	return v
}
