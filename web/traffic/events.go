package traffic

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const (
	// maxEvents is the maximum number of events that a page reads from each source.
	maxEvents = 200
	// maxEventRows is the maximum number of rows in the list of events. Events with the same action in one step of
	// the charts share a row. Such a row names at most maxEventNames of the changed objects.
	maxEventRows  = 50
	maxEventNames = 3
	// nodesFor is how long the process caches the events about nodes. Nodes report every five seconds.
	nodesFor = 5 * time.Second
)

// An event is a change that can explain a change in the charts: a plan was published, an override or a block was
// set, an alert started, or a node started.
type event struct {
	at     time.Time
	action string // a key of eventWords
	name   string // name of the changed object; "" if the action says enough
	tenant string // slug of the tenant; "" for an event of the operator
	url    string // page about the object, or ""
	staff  bool   // only the operator's people see the event
}

// Actions of events that are not in the audit log. They come from alerts and from the reports of nodes.
const (
	alertBegan  = "alert.began"
	nodeStarted = "node.started"
	nodeSilent  = "node.silent"
)

// An eventWord has the texts for one kind of event: a letter for the charts, and a label for the list.
type eventWord struct{ mark, label string }

var eventWords = map[string]eventWord{
	"plan.publish":      {"P", "Plan published"},
	"override.create":   {"O", "Override created"},
	"override.update":   {"O", "Override changed"},
	"override.delete":   {"O", "Override ended"},
	"override.expire":   {"O", "Override expired"},
	"block.create":      {"B", "Key blocked"},
	"block.delete":      {"B", "Block ended"},
	"block.expire":      {"B", "Block expired"},
	"grant.create":      {"G", "Grant created"},
	"grant.delete":      {"G", "Grant voided"},
	"grant.expire":      {"G", "Grant expired"},
	"list_entry.create": {"L", "List entry added"},
	"list_entry.delete": {"L", "List entry removed"},
	"list_entry.expire": {"L", "List entry expired"},
	"counter.reset":     {"C", "Counters reset"},
	alertBegan:          {"A", "Alert began"},
	nodeStarted:         {"N", "Node started"},
	nodeSilent:          {"N", "Node silent"},
}

// A nodeCache caches the events about nodes. All pages share it.
type nodeCache struct {
	mu     sync.Mutex
	loaded time.Time
	list   []event
}

// events returns the newest events in a time range, ordered by time. They are the events of the tenant with this
// number, or of all tenants if the number is 0. more reports whether there are older events that it left out.
func (w *pages) events(ctx context.Context, tenant uint32, from, to time.Time) (list []event, more bool, err error) {
	var subject *enforcement.Subject
	if tenant != 0 {
		known, found := w.cfg.Snapshot().SubjectByNumber(tenant)
		if !found {
			return nil, false, nil
		}
		subject = known
	}
	var parts [4][]event
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { parts[0], err = w.auditEvents(ctx, subject, from, to); return err })
	group.Go(func() (err error) { parts[1], err = w.alertEvents(ctx, "", subject, from, to); return err })
	if subject != nil {
		group.Go(func() (err error) {
			parts[2], err = w.alertEvents(ctx, subject.TenantID, subject, from, to)
			return err
		})
	}
	group.Go(func() (err error) { parts[3], err = w.nodeEvents(ctx, from, to); return err })
	if err := group.Wait(); err != nil {
		return nil, false, err
	}
	for _, part := range parts {
		more = more || len(part) >= maxEvents
	}
	list = slices.Concat(parts[:]...)
	slices.Reverse(list) // the newest of the same time last
	slices.SortStableFunc(list, func(a, b event) int { return a.at.Compare(b.at) })
	return list, more, nil
}

// auditEvents returns events from the audit log. If subject is set, these are the changes of this tenant and the
// publications of its plan.
func (w *pages) auditEvents(ctx context.Context, subject *enforcement.Subject, from, to time.Time) ([]event, error) {
	f := audit.EventFilter{From: from, To: to, Limit: maxEvents}
	if subject != nil {
		f.TenantID = subject.TenantID
	}
	lines, err := w.cfg.Events.AuditEvents(ctx, f)
	if err != nil {
		return nil, err
	}
	if subject != nil && subject.Plan != nil {
		f.TenantID, f.Plan = "", subject.Plan.Slug
		published, err := w.cfg.Events.AuditEvents(ctx, f)
		if err != nil {
			return nil, err
		}
		lines = append(lines, published...)
	}
	list := make([]event, len(lines))
	for i := range lines {
		list[i] = w.auditEvent(&lines[i])
	}
	return list, nil
}

func (w *pages) auditEvent(l *audit.Event) event {
	e := event{at: l.At, action: l.Action, name: l.ObjectName}
	kind, _, _ := strings.Cut(l.Action, ".")
	if kind == "plan" {
		e.url = web.PlanURL(l.ObjectName)
		return e
	}
	if kind == "list_entry" || kind == "counter" {
		e.name = "" // it is a value of a request
	}
	if s, known := w.cfg.Snapshot().Subject(l.TenantID); known {
		e.tenant = s.Tenant
		page := map[string]string{"override": "/overrides", "block": "/blocks", "grant": "/grants", "list_entry": "/lists"}[kind]
		e.url = "/tenants/" + s.Tenant + page
	}
	return e
}

// alertEvents returns the starts of alerts. owner is the ID of the tenant that owns the alerts, or "" for the
// operator's alerts. If subject is set, it leaves out alerts of the operator that are about other tenants.
func (w *pages) alertEvents(ctx context.Context, owner string, subject *enforcement.Subject, from, to time.Time) ([]event, error) {
	incidents, err := w.cfg.Alerts.Incidents(ctx, owner, alerts.Filter{From: from, To: to, Limit: maxEvents})
	if err != nil {
		return nil, err
	}
	var list []event
	for i := range incidents {
		n := &incidents[i]
		if owner == "" && subject != nil && n.Rule.Tenant != "" && n.Rule.Tenant != subject.Tenant {
			continue
		}
		e := event{at: n.BeganAt, action: alertBegan, name: n.Rule.Name, url: "/alerts/" + n.ID, staff: owner == ""}
		if owner != "" {
			e.url = "/tenants/" + subject.Tenant + e.url
		}
		list = append(list, e)
	}
	return list, nil
}

// nodeEvents returns an event for the start of each running node, and one for the last report of each silent node.
func (w *pages) nodeEvents(ctx context.Context, from, to time.Time) ([]event, error) {
	w.nodes.mu.Lock()
	defer w.nodes.mu.Unlock()
	if time.Since(w.nodes.loaded) >= nodesFor {
		o, err := w.cfg.Nodes.Overview(ctx)
		if err != nil {
			return nil, err
		}
		w.nodes.loaded, w.nodes.list = time.Now(), nil
		for i := range o.Nodes {
			n := &o.Nodes[i]
			e := event{at: n.StartedAt, action: nodeStarted, name: n.Name, url: "/system", staff: true}
			if !n.Unreadable {
				w.nodes.list = append(w.nodes.list, e)
			}
			if n.Silent {
				e.at, e.action = n.SeenAt, nodeSilent
				w.nodes.list = append(w.nodes.list, e)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(w.nodes.list), func(e event) bool { return e.at.Before(from) || !e.at.Before(to) }), nil
}

// events returns the rows of the event list that the visitor may see, newest first. Events with the same action in
// one step of the charts share a row.
func (d *drawing) events() views.Events {
	v := views.Events{More: d.o.moreEvents}
	type place struct {
		step   int64
		action string
	}
	rows := map[place]int{}
	for i := range slices.Backward(d.o.events) {
		e := &d.o.events[i]
		if e.staff && d.member {
			continue
		}
		at := place{e.at.Truncate(d.step).Unix(), e.action}
		row, known := rows[at]
		if !known {
			if len(v.Rows) == maxEventRows {
				v.More = true
				break
			}
			row = len(v.Rows)
			rows[at] = row
			word := eventWords[e.action]
			v.Rows = append(v.Rows, views.EventRow{At: e.at, Mark: word.mark, Label: word.label})
		}
		v.Count++
		d.addObject(&v.Rows[row], e)
	}
	return v
}

// addObject adds the changed object of an event to a row of the event list. If the row already has the object,
// addObject adds nothing.
func (d *drawing) addObject(row *views.EventRow, e *event) {
	row.At = e.at // the earliest event of the row
	object := views.Link{Text: e.name, URL: e.url}
	switch {
	case e.tenant == "" || d.tenant != 0:
	case e.name == "":
		object.Text = e.tenant
	default:
		object.Text += " of " + e.tenant
	}
	if d.member && e.tenant == "" && e.action == "plan.publish" {
		object.URL = "" // members of a tenant cannot open the page of a plan
	}
	row.Count++
	if object.Text == "" || slices.Contains(row.Objects, object) {
		return
	}
	if len(row.Objects) == maxEventNames {
		row.Others++
		return
	}
	row.Objects = append(row.Objects, object)
}
