package views

import (
	"fmt"
	"strings"
	"time"
)

// A Traffic shows the decisions in a time range: of all tenants, or of one tenant, policy or route. A part
// that has no data is nil.
type Traffic struct {
	// Empty appears in place of all other parts if there are no decisions.
	Empty *Empty
	Tiles []Tile
	// Requests shows the number of decisions over time. Rate shows the percentage of decisions that limits
	// denied.
	Requests, Rate Chart
	// Denied shows the requests that limits denied. It is set if Requests is grouped.
	Denied *Chart
	// Limited and Allowed rank keys: those with the most denied requests, and those with the most allowed
	// requests.
	Limited, Allowed *KeyTable
	Routes           *RouteTable
	RetryAfter       *Bars
	// Latency shows the latency of the limiter over time. Split shows how many checks Redis decided, and how
	// many the failure mode local decided.
	Latency *Chart
	Split   Chart
	Tenants *TenantTable
	// Events has the events that the charts mark.
	Events Events
	// Note says which parts are missing and why, or is "".
	Note string
}

// EventsID is the HTML ID of the list of events. The event that updates the list has the same name. The
// script reads the marks of the charts from this list.
const EventsID = "events"

// Events lists events that may have caused a change of the figures, newest first.
type Events struct {
	Count int // of all rows
	Rows  []EventRow
	More  bool // older events are left out
}

// An EventRow is one event, or several events with the same action in one step of the charts.
type EventRow struct {
	At          time.Time // time of the first event
	Mark, Label string    // the letter in the chart; what happened
	Count       int
	Objects     []Link // the changed objects; without a URL if the visitor may open no page about them
	Others      int    // objects that are not in Objects
}

// linkID returns the HTML ID of the link to an object. The ID stays the same when the list is rendered
// again, so the link keeps the focus.
func (r *EventRow) linkID(object int) string {
	return fmt.Sprintf("event-%d-%s-%d", r.At.Unix(), strings.ReplaceAll(r.Label, " ", "-"), object)
}

// summary says how many events there are, and which one is the newest.
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
	ID     string // HTML id of the row's link; it stays the same when the table is updated
	Policy string
	Parts  []KeyPart
	// Redacted says that the values are shown as hashes.
	Redacted          bool
	Tenant, TenantURL string
	// URL is the address of the page about the key. DenialsURL is the address of the list of the key's
	// denials. Each is "" if there is no such page.
	URL, DenialsURL string
	Count           Number // if the true number is not known, Exact has its bounds
	N, Most         int64  // for the bar
	// Share is the percentage of this key's requests that were denied, or a range of percentages. In the
	// table of allowed keys, its Text is "". Limit describes the limits of the policy, or is "". Trend shows
	// the count over time.
	Share Number
	Limit string
	Trend Spark
}

// A KeyPart is one attribute value of a counter key.
type KeyPart struct {
	Name, Value string
	Missing     bool // it was not sent
}

// short returns the shortened form of a hash.
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
	// Begin and End are the times of the first and the last cell in each row of the heat map.
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

// A TenantTable ranks tenants by the percentage of their requests that were denied with 429.
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
	Options                                []Option // choices of the field; empty for a text
	Check                                  bool     // the field is a check box; Value is "1" if it is checked
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

// open reports whether the filter form must be unfolded when the page loads. This is so if one of its
// fields has an error.
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
	ShareURL string // address of the form that shares the page, or ""
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
