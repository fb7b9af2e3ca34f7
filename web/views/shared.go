package views

import (
	"time"
)

// A Shared is the page of a shared link: a live display, or a snapshot. A snapshot is stored in this form, so all
// fields of its types are exported.
type Shared struct {
	// Title is the name of the page, such as "Overview". Name is the name of the link, which a stored snapshot does not
	// have.
	Title, Name string
	// Period is the time range in words. Zone is the name of the time zone.
	Period, Zone string
	Filters      []Chip
	// Taken is the time at which a snapshot was taken. It is zero for a live display.
	Taken time.Time
	// Expires is the time at which the link ends. A stored snapshot does not have it.
	Expires time.Time
	// Traffic and Denials are the content. One of them is nil. On the page of a tenant, Near has the limits that are
	// nearest to exhaustion.
	Traffic *Traffic
	Near    Left
	Denials *DenialList
}

// SharedEnded is the name of an event that replaces the content of a display after its link has ended. SharedClosed
// is the name of the event after which the browser disconnects.
const (
	SharedEnded  = "ended"
	SharedClosed = "closed"
)

// A ShareForm is the form with which a visitor shares a page.
type ShareForm struct {
	Tabs         []Tab
	Faults       []Fault
	Kind         Choice
	Name         Input
	End          Ending
	Query        string // the parameters of the shared page
	Action, Back string
	ListURL      string // address of the list of shared links
}

// A ShareMade is the page that shows the address of a new link. No other page shows the address.
type ShareMade struct {
	Tabs          []Tab
	Title, URL    string
	Back, ListURL string
}

// SharedLinks lists the shared links of a tenant or of the operator.
type SharedLinks struct {
	List[SharedLink]
	Lead      string
	MayRevoke bool
}

// A SharedLink is one link in the list.
type SharedLink struct {
	ID               string
	Name, Kind, Page string
	Detail           string // filters and time range of the link in words, or ""
	CreatedBy        string
	Created, Used    Moment
	Expires          Moment
	RevokeURL        string // "" if the visitor may not revoke it
}

// SharedLinkRow is the start of the HTML id that a link's row has. The ID of the link follows it. A result of the
// command palette leads to this row.
const SharedLinkRow = "link-"
