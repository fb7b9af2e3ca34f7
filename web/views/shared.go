package views

import (
	"time"
)

// A Shared is a page that a shared link opens: a live display, or a snapshot. A snapshot is
// stored in this form, so all fields of its types are exported.
type Shared struct {
	// Title names the page, such as "Overview". Name is the name of the link. A snapshot is
	// stored without it.
	Title, Name string
	// Period is the time range in words, and Zone the name of the time zone.
	Period, Zone string
	Filters      []Chip
	// Taken is the time of a snapshot. It is zero for a live display.
	Taken time.Time
	// Expires is the end of the link. A snapshot is stored without it.
	Expires time.Time
	// Traffic and Denials are the content; one of them is nil. Near has the limits that are
	// nearest to exhaustion, on the page of a tenant.
	Traffic *Traffic
	Near    Left
	Denials *DenialList
}

// SharedEnded is the name of the event that replaces the content of a display whose link has
// ended. After SharedClosed, the browser disconnects.
const (
	SharedEnded  = "ended"
	SharedClosed = "closed"
)

// A ShareForm is the form that shares a page.
type ShareForm struct {
	Tabs         []Tab
	Faults       []Fault
	Kind         Choice
	Name         Input
	End          Ending
	Query        string // the parameters of the shared page
	Action, Back string
	ListURL      string // of the list of shared links
}

// A ShareMade shows the address of a new link. It is the only page that shows it.
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
	Detail           string // the filters and the time range, or ""
	CreatedBy        string
	Created, Used    Moment
	Expires          Moment
	RevokeURL        string // "" if the visitor may not revoke it
}

// SharedLinkRow is the prefix of the HTML id of the row of a link, before the ID of the link. A result of the palette
// leads to the row.
const SharedLinkRow = "link-"
