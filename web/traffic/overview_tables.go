package traffic

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

// mark returns an HTML id that is made from a hash of the given texts. The id is the same after
// each update of the page, so the script finds the element again.
func mark(prefix string, parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return prefix + "-" + strconv.FormatUint(h.Sum64(), 36)
}

func (d *drawing) keys(id, title, label, tone string, top *metrics.TopKeys) *views.KeyTable {
	t := &views.KeyTable{
		ID: id, Title: title, CountLabel: label, Tone: tone, Tenants: d.tenant == 0,
		Empty: "Limits denied no key in this time.",
	}
	if id == "allowed" {
		t.Empty = "No policy that counts by key allowed a request in this time."
	}
	for i := range top.Keys {
		k := &top.Keys[i]
		row := d.keyRow(id, k)
		row.Most = top.Keys[0].Count
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) > 0 {
		first := &t.Rows[0]
		verb := "has the most denials"
		if id == "allowed" {
			verb = "has the most allowed requests"
		}
		t.Summary = fmt.Sprintf("%s %s: %s, %s of all.", keyWords(first), verb,
			views.Count(first.N).Text, views.Percent(first.N, max(top.Total, first.N)).Text)
	}
	return t
}

// limitWords describes the limits of a policy in the plan of a tenant, such as "100 requests per
// minute". If the policy has no limits, it returns "".
func (w *pages) limitWords(tenant uint32, policy string) string {
	subject, known := w.cfg.Snapshot().SubjectByNumber(tenant)
	if !known || subject.Plan == nil {
		return ""
	}
	rule, known := subject.Plan.Rule(policy)
	if !known {
		return ""
	}
	list := make([]string, len(rule.Limits))
	for i, l := range rule.Limits {
		list[i] = plans.Describe(l.Limit)
	}
	return strings.Join(list, "; ")
}

// keyWords describes a counted key as part of a sentence.
func keyWords(k *views.KeyRow) string {
	if len(k.Parts) == 0 {
		return "The whole tenant"
	}
	text := ""
	for i, part := range k.Parts {
		if i > 0 {
			text += ", "
		}
		switch {
		case part.Missing:
			text += "no " + part.Name
		case k.Redacted:
			text += "one " + part.Name
		default:
			text += part.Name + " " + part.Value
		}
	}
	return text
}

// shareOfKey returns the share of a key's requests that was denied. If the number of allowed
// requests is not known exactly, it returns the smallest and the largest possible share.
func shareOfKey(k *metrics.TopKey) views.Number {
	most := views.Percent(k.Count, k.Count+k.Allowed)
	least := views.Percent(k.Count-k.Error, k.Count-k.Error+k.AllowedMost)
	if k.Count == k.Error || least.Text == most.Text {
		return most
	}
	return views.Number{Text: least.Text + " to " + most.Text, Exact: "at least " + least.Exact + ", at most " + most.Exact}
}

func (d *drawing) keyRow(id string, k *metrics.TopKey) views.KeyRow {
	row := views.KeyRow{Policy: k.Policy, Redacted: k.Redacted, N: k.Count, Count: views.Count(k.Count)}
	row.Count.Exact = views.Between(k.Count-k.Error, k.Count)
	if id == "limited" {
		row.Limit = d.w.limitWords(k.Tenant, k.Policy)
		row.Trend = views.Spark{Label: "Denied over time", Values: k.Trend}
		row.Share = shareOfKey(k)
	}
	identity, page := []string{strconv.Itoa(int(k.Tenant)), k.Policy}, url.Values{}
	for i, name := range k.Names {
		part := views.KeyPart{Name: name, Value: k.Values[i], Missing: i < len(k.Missing) && k.Missing[i]}
		row.Parts = append(row.Parts, part)
		identity = append(identity, name, part.Value, strconv.FormatBool(part.Missing))
		field := web.KeyFieldPrefix + enforcement.CountedAttribute(name)
		if part.Missing {
			page.Add("missing", name)
		} else if name != enforcement.IPNetwork || !page.Has(field) {
			page.Set(field, part.Value)
		}
	}
	refusals := web.With(page, "policy", k.Policy)
	refusals.Del("missing")
	row.ID = mark(id, identity...)
	row.Tenant = d.w.names.Slug(k.Tenant)
	if row.Tenant == "" {
		row.Tenant = "deleted tenant"
		return row
	}
	row.TenantURL = d.s.Address("/tenants/"+row.Tenant, nil)
	if k.Redacted {
		return row // there is no page for this key, because the tenant does not store values
	}
	row.URL = web.AppendQuery(d.s.Address("/tenants/"+row.Tenant+"/usage/"+url.PathEscape(k.Policy), nil), page)
	if id == "limited" {
		row.DenialsURL = d.s.Address("/tenants/"+row.Tenant+"/denials", refusals)
	}
	return row
}

func (d *drawing) routes() *views.RouteTable {
	o := &d.o.Routes
	t := &views.RouteTable{ID: "routes", Title: "Hot routes", More: o.More, Empty: "No requests in this time."}
	var strips [][]metrics.Point
	var step time.Duration
	most := int64(0)
	for i := range o.Routes {
		points, length := grouped(o.Routes[i].Points, o.Step.Duration(), stripCells)
		strips, step = append(strips, points), max(step, length)
		for k := range points {
			most = max(most, points[k].Limited())
		}
	}
	hottest := -1
	for i := range o.Routes {
		r := &o.Routes[i]
		row := views.RouteRow{
			ID: mark("route", r.Name), Name: r.Name, Total: views.Count(r.Total.Requests),
			Rate: views.Percent(r.Total.Limited(), r.Total.Requests), URL: d.s.Address(d.path, web.With(d.also, "route", r.Name)),
		}
		if r.Total.Limited() > 0 {
			row.DenialsURL = d.denials(url.Values{"route": {r.Name}, "reason": {"limited"}})
			if hottest < 0 || r.Total.Limited()*o.Routes[hottest].Total.Requests > o.Routes[hottest].Total.Limited()*r.Total.Requests {
				hottest = i
			}
		}
		row.Strip.Label = views.Quantity(r.Total.Limited(), "request", "requests") + " denied of " + views.Count(r.Total.Requests).Text
		for k := range strips[i] {
			p := &strips[i][k]
			cell := views.Cell{Level: views.HeatLevel(p.Limited(), most)}
			if p.Requests > 0 {
				cell.Title = stamp(d.s.In(p.At), step) + ": " + views.Count(p.Limited()).Text + " denied of " + views.Count(p.Requests).Text
			}
			row.Strip.Cells = append(row.Strip.Cells, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	if len(strips) > 0 && len(strips[0]) > 0 {
		t.Begin, t.End = stamp(d.s.In(strips[0][0].At), step), stamp(d.s.In(strips[0][len(strips[0])-1].At), step)
	}
	switch {
	case hottest >= 0:
		r := &o.Routes[hottest]
		t.Summary = fmt.Sprintf("%s has the highest rate: limits denied %s of its %s.", r.Name,
			views.Percent(r.Total.Limited(), r.Total.Requests).Text, views.Quantity(r.Total.Requests, "request", "requests"))
	case len(t.Rows) > 0:
		t.Summary = fmt.Sprintf("Limits denied no requests. The busiest route is %s with %s.", o.Routes[0].Name,
			views.Quantity(o.Routes[0].Total.Requests, "request", "requests"))
	}
	return t
}

// stamp returns the time of a cell in the heat map as text, in the time zone of t. The text has
// the time of day only if a cell is shorter than a day.
func stamp(t time.Time, step time.Duration) string {
	switch {
	case step >= web.Day:
		return dayOf(t, "2 Jan")
	case step >= time.Hour:
		return t.Format("2 Jan 15:04")
	}
	return t.Format("15:04")
}

// retryAfter returns the histogram of retry times. For each range of times, it has the number of
// denied requests whose retry time is in this range.
func (d *drawing) retryAfter() *views.Bars {
	h := &d.o.RetryAfter
	b := &views.Bars{
		ID: "retry-after", Title: "Retry after", ValueLabel: "Retry after", CountLabel: "Denials",
		Empty: "No denial had a retry time in this time.",
	}
	if h.Count+h.Never == 0 {
		return b
	}
	for _, wait := range requests.Waits {
		b.Bars = append(b.Bars, views.Bar{Label: wait.Label, Edge: wait.Edge, URL: d.denials(url.Values{"wait": {wait.Name}})})
	}
	for _, bucket := range h.Buckets {
		// A bucket in the database is narrower than a bar of the histogram. The bucket belongs to the
		// bar that contains the middle of the bucket.
		value, place := time.Duration((bucket.From+bucket.To+1)/2)*time.Millisecond, 0
		for value > requests.Waits[place].To {
			place++
		}
		b.Bars[place].Count += bucket.Count
	}
	if h.Never > 0 {
		b.Bars = append(b.Bars, views.Bar{
			Label: "waiting does not help", Edge: "never", Count: h.Never, Tone: "quiet",
			URL: d.denials(url.Values{"wait": {requests.NeverWait}}),
		})
	}
	if h.Count > 0 {
		b.Summary = fmt.Sprintf("50%% of the denials had a retry time of up to %s, 95%% of up to %s.",
			requests.Millis(h.P50).Text, requests.Millis(h.P95).Text)
	}
	if h.Never > 0 {
		if b.Summary != "" {
			b.Summary += " "
		}
		b.Summary += "For " + views.Quantity(h.Never, "denial", "denials") + ", waiting does not help."
	}
	if blocked := d.o.Traffic.Total.Blocked; blocked > 0 {
		b.Note = "Includes " + views.Quantity(blocked, "denial", "denials") + " by blocks, whose retry time is the end of the block."
		b.NoteURL = d.denials(url.Values{"reason": {string(enforcement.ReasonBlocked)}})
	}
	return b
}

func (d *drawing) tenants() *views.TenantTable {
	o := &d.o.Tenants
	t := &views.TenantTable{ID: "tenants", Title: "Tenants by 429 rate", Empty: "Limits denied no tenant in this time."}
	for i := range o.Tenants {
		x := &o.Tenants[i]
		if x.Limited() == 0 {
			continue
		}
		slug := d.w.names.Slug(x.Tenant)
		row := views.TenantRow{
			ID: "tenant-" + strconv.Itoa(int(x.Tenant)), Name: slug, Requests: views.Count(x.Requests), Limited: views.Count(x.Limited()),
			Rate: views.Percent(x.Limited(), x.Requests), N: x.Limited(), Most: x.Requests,
		}
		if slug == "" {
			row.Name = "deleted tenant"
		} else {
			row.URL = d.s.Address(d.path, web.With(d.also, "tenant", slug))
			row.DenialsURL = d.denials(url.Values{"tenant": {slug}, "reason": {"limited"}})
		}
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) > 0 {
		first := &t.Rows[0]
		t.Summary = fmt.Sprintf("Among the tenants with the most denials, %s has the highest rate: %s of %s.", first.Name, first.Rate.Text,
			views.Quantity(first.Most, "request", "requests"))
	}
	return t
}
