package traffic

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// mark names something by its content, so that the same has the same id in each
// drawing of a page.
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
		Empty: "No key was limited in this time.",
	}
	if id == "allowed" {
		t.Empty = "No request of a policy that counts by keys passed in this time."
	}
	for i := range top.Keys {
		k := &top.Keys[i]
		row := d.keyRow(id, k)
		row.Most = top.Keys[0].Count
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) > 0 {
		first := &t.Rows[0]
		verb := "was limited most"
		if id == "allowed" {
			verb = "passed most"
		}
		t.Summary = fmt.Sprintf("%s %s: %s, %s of all by key.", keyWords(first), verb,
			count(first.N, "time", "times"), views.Percent(first.N, max(top.Total, first.N)).Text)
	}
	return t
}

// keyWords name a key in a sentence.
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

func (d *drawing) keyRow(id string, k *metrics.TopKey) views.KeyRow {
	row := views.KeyRow{Policy: k.Policy, Redacted: k.Redacted, N: k.Count, Count: views.Count(k.Count)}
	row.Count.Exact = views.Between(k.Count-k.Error, k.Count)
	identity := []string{strconv.Itoa(int(k.Tenant)), k.Policy}
	page, refusals := url.Values{}, url.Values{"policy": {k.Policy}}
	for i, name := range k.Names {
		part := views.KeyPart{Name: name, Value: k.Values[i], Missing: i < len(k.Missing) && k.Missing[i]}
		row.Parts = append(row.Parts, part)
		identity = append(identity, name, part.Value, strconv.FormatBool(part.Missing))
		if part.Missing {
			page.Add("missing", name)
			continue
		}
		if name == web.PrefixAttribute { // no request has it: its address is one of the network
			if page.Get(keyPrefix+"ip") == "" {
				page.Set(keyPrefix+"ip", part.Value)
				refusals.Set(keyPrefix+"ip", part.Value)
			}
			continue
		}
		page.Set(keyPrefix+name, part.Value)
		refusals.Set(keyPrefix+name, part.Value)
	}
	row.ID = mark(id, identity...)
	row.Tenant = d.w.slugOf(k.Tenant)
	if row.Tenant == "" {
		row.Tenant = "deleted tenant"
		return row
	}
	row.TenantURL = d.s.Address("/tenants/"+row.Tenant, nil)
	if k.Redacted {
		return row // a hash leads nowhere: what the key was is not kept
	}
	row.URL = d.s.Address("/tenants/"+row.Tenant+"/usage/"+url.PathEscape(k.Policy), nil)
	if len(page) > 0 {
		row.URL = joined(row.URL, page)
	}
	if id == "limited" {
		row.DenialsURL = d.s.Address("/tenants/"+row.Tenant+"/denials", refusals)
	}
	return row
}

// joined adds parts to the query of an address.
func joined(address string, more url.Values) string {
	u, err := url.Parse(address)
	if err != nil {
		return address // it is ours
	}
	q := u.Query()
	for name, values := range more {
		q[name] = values
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func (d *drawing) routes() *views.RouteTable {
	o := &d.o.Routes
	t := &views.RouteTable{ID: "routes", Title: "Hot routes", More: o.More, Empty: "No route was asked for in this time."}
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
			ID: mark("route", r.Name), Name: r.Name, Total: views.Count(r.Total.Requests), Limited: views.Count(r.Total.Limited()),
			Rate: views.Percent(r.Total.Limited(), r.Total.Requests), URL: d.s.Address(d.path, with(d.also, "route", r.Name)),
		}
		if r.Total.Limited() > 0 {
			row.DenialsURL = d.denials(url.Values{"route": {r.Name}, "reason": {"limited"}})
			if hottest < 0 || r.Total.Limited()*o.Routes[hottest].Total.Requests > o.Routes[hottest].Total.Limited()*r.Total.Requests {
				hottest = i
			}
		}
		row.Strip.Label = count(r.Total.Limited(), "request", "requests") + " limited, of " + views.Count(r.Total.Requests).Text
		for k := range strips[i] {
			p := &strips[i][k]
			cell := views.Cell{Level: views.HeatLevel(p.Limited(), most)}
			if p.Requests > 0 {
				cell.Title = stamp(p.At, step) + ": " + views.Count(p.Limited()).Text + " limited of " + views.Count(p.Requests).Text
			}
			row.Strip.Cells = append(row.Strip.Cells, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	if len(strips) > 0 && len(strips[0]) > 0 {
		t.Begin, t.End = stamp(strips[0][0].At, step), stamp(strips[0][len(strips[0])-1].At, step)
	}
	switch {
	case hottest >= 0:
		r := &o.Routes[hottest]
		t.Summary = fmt.Sprintf("Limits refuse most of %s: %s of its %s.", r.Name,
			views.Percent(r.Total.Limited(), r.Total.Requests).Text, count(r.Total.Requests, "request", "requests"))
	case len(t.Rows) > 0:
		t.Summary = fmt.Sprintf("Nothing was limited. The busiest is %s with %s.", o.Routes[0].Name,
			count(o.Routes[0].Total.Requests, "request", "requests"))
	}
	return t
}

// stamp is when a cell was, as exact as its length.
func stamp(t time.Time, step time.Duration) string {
	switch {
	case step >= web.Day:
		return t.UTC().Format("2 Jan")
	case step >= time.Hour:
		return t.UTC().Format("2 Jan 15:04")
	}
	return t.UTC().Format("15:04")
}

// waits are the buckets of retry times that people tell apart.
var waits = []struct {
	to    time.Duration
	label string
	tick  string
}{
	{time.Second, "up to 1 s", "1 s"},
	{5 * time.Second, "1 s to 5 s", "5 s"},
	{15 * time.Second, "5 s to 15 s", "15 s"},
	{30 * time.Second, "15 s to 30 s", "30 s"},
	{time.Minute, "30 s to 1 min", "1 min"},
	{5 * time.Minute, "1 min to 5 min", "5 min"},
	{15 * time.Minute, "5 min to 15 min", "15 min"},
	{time.Hour, "15 min to 1 h", "1 h"},
	{6 * time.Hour, "1 h to 6 h", "6 h"},
	{web.Day, "6 h to 1 day", "1 day"},
	{-1, "more than 1 day", "longer"},
}

// retryAfter is a histogram of what refused requests were told.
func (d *drawing) retryAfter() *views.Bars {
	h := &d.o.RetryAfter
	b := &views.Bars{
		ID: "retry-after", Title: "Retry after", ValueLabel: "Told to wait", CountLabel: "Refusals",
		Empty: "No refusal told when to come again in this time.",
	}
	if h.Count+h.Never == 0 {
		return b
	}
	for _, wait := range waits {
		b.Bars = append(b.Bars, views.Bar{Label: wait.label, Tick: wait.tick})
	}
	for _, bucket := range h.Buckets {
		// The bucket is told by its middle: it is narrower than any of ours.
		value, place := time.Duration((bucket.From+bucket.To+1)/2)*time.Millisecond, 0
		for waits[place].to >= 0 && value > waits[place].to {
			place++
		}
		b.Bars[place].Count += bucket.Count
	}
	if h.Never > 0 {
		b.Bars = append(b.Bars, views.Bar{Label: "waiting does not help", Tick: "never", Count: h.Never, Tone: "quiet"})
	}
	if h.Count > 0 {
		b.Summary = fmt.Sprintf("Half of those refused were told to wait up to %s, 95 %% up to %s.", millis(h.P50).Text, millis(h.P95).Text)
	}
	if h.Never > 0 {
		if b.Summary != "" {
			b.Summary += " "
		}
		b.Summary += "Waiting does not help " + count(h.Never, "of them", "of them") + "."
	}
	return b
}

func millis(ms int64) views.Number { return views.Duration(time.Duration(ms) * time.Millisecond) }

func (d *drawing) tenants() *views.TenantTable {
	o := &d.o.Tenants
	t := &views.TenantTable{ID: "tenants", Title: "Tenants by 429 rate", Empty: "No tenant's requests were limited in this time."}
	for i := range o.Tenants {
		x := &o.Tenants[i]
		if x.Limited() == 0 {
			continue
		}
		slug := d.w.slugOf(x.Tenant)
		row := views.TenantRow{
			ID: "tenant-" + strconv.Itoa(int(x.Tenant)), Name: slug, Requests: views.Count(x.Requests), Limited: views.Count(x.Limited()),
			Rate: views.Percent(x.Limited(), x.Requests), N: x.Limited(), Most: x.Requests,
		}
		if slug == "" {
			row.Name = "deleted tenant"
		} else {
			row.URL = d.s.Address(d.path, with(d.also, "tenant", slug))
			row.DenialsURL = d.denials(url.Values{"tenant": {slug}, "reason": {"limited"}})
		}
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) > 0 {
		first := &t.Rows[0]
		t.Summary = fmt.Sprintf("Of those that are limited most, %s has the highest rate: %s of %s.", first.Name, first.Rate.Text,
			count(first.Most, "request", "requests"))
	}
	return t
}
