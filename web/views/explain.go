package views

import "strconv"

// An Explain is the page that says what a request would be answered, and why.
type Explain struct {
	// Tabs of the tenant; none when any tenant can be asked for.
	Tabs   []Tab
	Action string // where the form goes
	Faults []Fault
	// AnyTenant: Tenant is asked for, with Tenants as suggestions.
	AnyTenant bool
	Tenant    Input
	Tenants   []Option
	// What the request is.
	Method, Path, Cost Input
	Rows               []AttributeRow
	Names              []string // of attributes, suggested
	CanMore            bool     // more rows fit
	// Answer is nil before anything was asked.
	Answer *Explained
}

// An AttributeRow is one attribute of the form.
type AttributeRow struct{ Name, Value Input }

// An Explained is the answer of an Explain.
type Explained struct {
	Verdict string // in a sentence
	Allowed bool
	Status  int
	Reason  string
	// PassesAt is when a refused request would pass, in RFC 3339; "": never.
	PassesAt string
	Degraded bool
	Answer   string // status line and headers
	Plan     string
	Route    string
	Path     string // as it is matched, if it was written otherwise
	List     *ExplainedList
	Policies []ExplainedPolicy
	// ListURL leads to the form of list entries, "" if there is none; Listings
	// have it filled in with each attribute.
	ListURL  string
	Listings []Listing
	// The question as calls of the API.
	ExplainCurl, CheckCurl string
}

// A Listing puts the value of an attribute on a list.
type Listing struct{ Attribute, Value, AllowURL, DenyURL string }

// An ExplainedList is the entry of a list that answered.
type ExplainedList struct {
	Name, Attribute, Value, Reason, URL string
	Ends                                Moment
}

// An ExplainedPolicy is one policy of the plan.
type ExplainedPolicy struct {
	Slug, Badge, Tone, Because, Mode string
	Applies                          bool
	// What it matches.
	Method, Path string
	Attributes   []KeyFact
	// Key is what it counts the request by; none: the tenant as a whole.
	Key        []KeyFact
	ReplacedBy string
	// What is set for the key; "": nothing.
	Override, OverrideURL        string
	Block, BlockURL, BlockReason string
	OverrideEnds, BlockEnds      Moment
	Limits                       []ExplainedLimit
	Links                        []Link
}

// A KeyFact is an attribute with its value.
type KeyFact struct {
	Name, Value string
	Missing     bool // it was not sent
}

// An ExplainedLimit is what a limit holds now.
type ExplainedLimit struct {
	Name, Aloud string
	Used, Most  int64
	Left, Holds Number
	Tone        string
	Refuses     bool
	Reset       string // "as new in 41 s"; "": it is as new
	Leased      string // how early it may deny; "": it is decided exactly
	// Remaining in units, ResetMillis in milliseconds, exactly.
	Remaining, ResetMillis int64
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// after is when the limit is as new, behind what it has left.
func (l ExplainedLimit) after() string {
	if l.Reset == "" {
		return ""
	}
	return ", " + l.Reset
}
