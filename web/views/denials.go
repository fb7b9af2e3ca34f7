package views

import (
	"context"
	"strings"
	"time"
)

// A Denials is the view of a page of recorded denials.
type Denials struct {
	Title, Lead string
	Notice      string
	ShareURL    string // address of the form that shares the page, or ""
	Tabs        []Tab  // tabs of the tenant to which the page belongs
	Ranges      Ranges
	Filters     Filters
	Find        FilterField // a decision id
	Groups      []RangeLink // links that select how the list is grouped
	List        DenialList
	// Event is the name of the event with which the stream updates the page. The event "denials"
	// replaces the list. On a paused page, the event "news" shows the number of new denials. If
	// the page has no stream, Event is "".
	Event string
	// OlderURL is the address of the next page of the list. NewestURL is the address of the first
	// page. Each is "" if there is no such page.
	OlderURL, NewestURL string
}

// A DenialList is the part of a page of denials that live updates replace.
type DenialList struct {
	Rows []Denial
	// Group is the name of the grouping. If it is set, the page shows Groups in place of Rows.
	Group   string
	Groups  []DenialGroup
	Tenants bool   // rows name their tenant
	Things  string // "denials"
	Summary string
	Empty   Empty // shown if there are no denials
}

// A Denial is one denial in a list.
type Denial struct {
	ID, URL           string
	Time              Stamp
	Tenant, TenantURL string
	Method, Path      string
	Policy, Limit     string
	Reason            ReasonWords
	Key               DenialKey
	RetryAfter        Number
	Degraded          bool
}

// A DenialKey is the key under which a denied request was counted. If Uncounted is set, the
// request was not counted under a key, and Parts are the attributes of the request.
type DenialKey struct {
	Parts     []KeyPart
	MoreParts int // that are not shown
	Redacted  bool
	Uncounted bool
}

// A DenialGroup has the denials of one key, policy or route. URL is the address of the list of
// these denials. Reason, Last and RetryAfter describe the newest denial.
type DenialGroup struct {
	ID, URL, Name string
	Key           DenialKey // set if the denials are grouped by key
	Tenant        string    // the slug, or how many tenants
	Policy        string
	Reason        ReasonWords
	MoreReasons   int // other reasons in the group
	Count         Number
	N             int64
	Last          Stamp
	LastURL       string
	RetryAfter    Number
}

// A Stamp is a time in a list. If the time is not today, its text has the date.
type Stamp struct {
	ISO     string
	At, Now time.Time
}

// Exact returns the exact time in the time zone of the page.
func (s Stamp) Exact(ctx context.Context) string {
	return InZone(ctx, s.At, "2 January 2006, 15:04:05.000")
}

func (s Stamp) text(ctx context.Context) string {
	t, now := s.At.In(Zone(ctx)), s.Now.In(Zone(ctx))
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		return t.Format("2 Jan 15:04:05")
	}
	return t.Format("15:04:05")
}

// NewStamp returns a Stamp of t. now is the current time.
func NewStamp(t, now time.Time) Stamp {
	return Stamp{ISO: t.UTC().Format(time.RFC3339), At: t, Now: now}
}

// ReasonWords describes the reason of a denial: a title, an explanation and a tone.
type ReasonWords struct {
	Text string
	Tone string // "bad", "warn", "violet"; "": quiet
}

// A DenialPage is the page about one denial. It explains the denial.
type DenialPage struct {
	Tabs   []Tab
	Notice string
	ID     string
	Reason ReasonWords
	Status string // "429"
	// Sentence says why the request was denied. Then says when the request would be allowed.
	Sentence, Then string
	Time           Moment
	Facts          []DenialFact
	Attributes     []KeyPart
	Redacted       bool
	Policies       []DenialPolicy
	NoPolicies     string // what to say without any
	Actions        []DenialAction
	Curl           string
}

// A DenialFact is one property of a denied request.
type DenialFact struct {
	Name, Value, URL string
	Mono             bool
}

// A DenialPolicy says what one policy of the plan decided about a denied request.
type DenialPolicy struct {
	Slug    string
	Outcome ReasonWords // "denied", "would pass", "did not apply"
	Why     string
	Limits  []DenialLimit
}

// A DenialLimit is the state of one limit when the request was denied.
type DenialLimit struct {
	Name       string // "" when the policy has one
	Numbers    string // "5 per minute"
	State      string // "5 of 5 used, this request costs 2"
	Then       string // "Passes after 41 s."
	Used, Most int64
	Tone       string
}

// A DenialAction is a link to a page on which the visitor can change what led to the denial.
type DenialAction struct {
	Text, Hint, URL, Icon string
}

// newDenials returns the text of a link that loads newer denials: those that came after the
// page.
func newDenials(n int, more bool) string {
	return when(more, "More than ") + Count(int64(n)).Text + " new: show them"
}

// thingsColumn returns the heading of the column that has the number of decisions in each
// group.
func (l DenialList) thingsColumn() string { return strings.ToUpper(l.Things[:1]) + l.Things[1:] }

// groupColumn returns the heading of the column that has the names of the groups.
func (l DenialList) groupColumn() string { return strings.ToUpper(l.Group[:1]) + l.Group[1:] }

// most returns the number of denials in the largest group.
func (l DenialList) most() int64 {
	var most int64
	for _, g := range l.Groups {
		most = max(most, g.N)
	}
	return most
}
