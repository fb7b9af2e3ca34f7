package views

import (
	"fmt"
	"strings"
	"time"
)

// A Traffic shows the decisions of a time range: of all tenants, or of one tenant, policy or route.
// A part without data is nil.
type Traffic struct {
	// Empty replaces the other parts if there are no decisions.
	Empty *Empty
	Tiles []Tile
	// Requests are the decisions over time. Rate is the percentage of decisions that limits
	// denied.
	Requests, Rate Chart
	// Denied are the requests that limits denied, if Requests is grouped.
	Denied *Chart
	// Limited and Allowed rank the keys with the most denied and the most allowed requests.
	Limited, Allowed *KeyTable
	Routes           *RouteTable
	RetryAfter       *Bars
	// Latency shows the latency of the limiter over time. Split shows how many checks Redis
	// decided, and how many were decided by the failure mode local.
	Latency *Chart
	Split   Chart
	Tenants *TenantTable
	// Events are the events that the charts mark.
	Events Events
	// Note says which parts are missing and why, or is "".
	Note string
}

// EventsID is the HTML ID of the list of events. It is also the name of the event with which
// the stream updates the list. The script reads the marks of the charts from the list.
const EventsID = "events"

// Events lists events that can be the cause of changed figures, newest first.
type Events struct {
	Count int // of all rows
	Rows  []EventRow
	More  bool // older events are left out
}

// An EventRow is one event, or several events of the same kind in one step of the charts.
type EventRow struct {
	At          time.Time // of the first event
	Mark, Label string    // the letter in the chart; what happened
	Count       int
	Objects     []Link // what it happened to; without a URL if the visitor may open no page about it
	Others      int    // objects that are not in Objects
}

// linkID returns the HTML ID of the link to an object. It stays the same when the list is
// rendered again, so the link keeps the focus.
func (r *EventRow) linkID(object int) string {
	return fmt.Sprintf("event-%d-%s-%d", r.At.Unix(), strings.ReplaceAll(r.Label, " ", "-"), object)
}

// summary says how many events there are, and which is the newest.
func (e Events) summary() string {
	if len(e.Rows) == 0 {
		return ""
	}
	return Quantity(int64(e.Count), "change or alert", "changes and alerts") + " in this time"
}

// A KeyTable is a ranking of counter keys.
type KeyTable struct {
	ID, Title, Summary string
	CountLabel         string
	Rows               []KeyRow
	Tone               string // of the bars
	Tenants            bool   // rows name their tenant
	Empty              string
}

// A KeyRow is one key of a ranking.
type KeyRow struct {
	ID     string // HTML id of the row's link, which does not change between updates
	Policy string
	Parts  []KeyPart
	// Redacted means that the values are shown as hashes.
	Redacted          bool
	Tenant, TenantURL string
	// URL is the address of the page about the key. DenialsURL is the address of the list of
	// its denials. Each is "" if there is no such page.
	URL, DenialsURL string
	Count           Number // Exact has the bounds of the true number
	N, Most         int64  // for the bar
	// Share is the percentage of this key's requests that were denied, or a range. Its Text is ""
	// in the table of allowed keys. Limit describes the limits of the policy, or is "". Trend shows the count
	// over time.
	Share Number
	Limit string
	Trend Spark
}

// A KeyPart is one attribute value of a counter key.
type KeyPart struct {
	Name, Value string
	Missing     bool // it was not sent
}

// short returns a hash in a shortened form.
func (k KeyRow) short(value string) string {
	const enough = 12
	if k.Redacted && len(value) > enough {
		return value[:enough] + "…"
	}
	return value
}

// A RouteTable is a heat map of routes.
type RouteTable struct {
	ID, Title, Summary string
	Rows               []RouteRow
	// Begin and End are the times of the first and of the last cell in each row of the heat
	// map.
	Begin, End string
	More       bool
	Empty      string
}

// A RouteRow is one route.
type RouteRow struct {
	ID, Name, URL, DenialsURL string
	Total, Rate               Number
	Strip                     Strip // empty after the first ten rows
}

// A TenantTable ranks tenants by the percentage of requests that were denied with 429.
type TenantTable struct {
	ID, Title, Summary string
	Rows               []TenantRow
	Empty              string
}

// A TenantRow is one tenant.
type TenantRow struct {
	ID, Name, URL, DenialsURL string
	Requests, Limited, Rate   Number
	N, Most                   int64 // for the bar
}

// A Chip is an active filter, with a link that removes it.
type Chip struct {
	Name, Value string
	RemoveURL   string
}

// A FilterField is one field of the filter form.
type FilterField struct {
	Name, Label, Value, Placeholder, Error string
	Options                                []Option // of a choice; empty for a text
	Check                                  bool     // a check box; Value is "1" if it is checked
	List                                   []string // suggestions for a text
}

func (f FilterField) id() string     { return "filter-" + f.Name }
func (f FilterField) listID() string { return f.id() + "-list" }

func (f FilterField) formField() FormField {
	return FormField{Name: f.id(), Label: f.Label, Error: f.Error}
}

// A Filters is the filter form of a page, with a chip for each active filter.
type Filters struct {
	Action   string
	Fields   []FilterField
	Hidden   []Hidden
	Chips    []Chip
	ClearURL string
	Saved    *SavedFilters // nil: the page has no saved filters
}

// open reports whether the filter form must be unfolded, because one of its fields has an
// error.
func (f Filters) open() bool {
	for _, field := range f.Fields {
		if field.Error != "" {
			return true
		}
	}
	return false
}

// An Overview is the first page of the operator.
type Overview struct {
	Lead     string
	Notice   string
	ShareURL string // of the form that shares the page, or ""
	Ranges   Ranges
	Filters  Filters
	Traffic  Traffic
}

// Between formats a number of which only two bounds are known: "12,300 to 12,340".
func Between(low, high int64) string {
	if low >= high {
		return grouped(high)
	}
	return grouped(max(0, low)) + " to " + grouped(high)
}
