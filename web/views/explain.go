package views

import "strconv"

// An Explain is the page that shows the answer to a request and its reasons.
type Explain struct {
	// Tabs are those of the tenant. They are empty if the form asks for the tenant.
	Tabs   []Tab
	Action string // where the form goes
	Faults []Fault
	// AnyTenant is set if the form asks for the tenant. Tenants are its suggestions.
	AnyTenant          bool
	Tenant             Input
	Tenants            []Option
	Method, Path, Cost Input
	Rows               []AttributeRow
	Names              []string // of attributes, suggested
	CanMore            bool     // more rows fit
	// Answer is nil if the address has no request.
	Answer *Explained
}

// An AttributeRow is one attribute of the form.
type AttributeRow struct{ Name, Value Input }

// An Explained is the answer to a request.
type Explained struct {
	Verdict string // in a sentence
	Allowed bool
	Status  int
	Reason  string
	// PassesAt is when a denied request would pass, in RFC 3339. It is "" for never.
	PassesAt string
	Degraded bool
	Answer   string // status line and headers
	Plan     string
	Route    string
	Path     string // the normalized path, if it differs
	List     *ExplainedList
	Policies []ExplainedPolicy
	// Listings are the form of list entries, filled in for each attribute.
	Listings []Listing
	// The request as calls of the API.
	ExplainCurl, CheckCurl string
}

// A Listing adds the value of an attribute to a list.
type Listing struct{ Attribute, Value, AllowURL, DenyURL string }

// An ExplainedList is the entry of a list that decided.
type ExplainedList struct {
	Name, Attribute, Value, Reason, URL string
	Ends                                Moment
}

// An ExplainedPolicy is one policy of the plan.
type ExplainedPolicy struct {
	Slug, Badge, Tone, Because, Mode string
	Applies                          bool
	Method, Path                     string
	Attributes                       []KeyFact
	// Key is the key of the request. It is empty if the policy counts the whole tenant.
	Key        []KeyFact
	Leased     bool // nodes draw quota ahead
	ReplacedBy string
	// Override and Block are "" if the key has none.
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

// An ExplainedLimit is the current state of a limit.
type ExplainedLimit struct {
	Name, Aloud string
	Used, Most  int64
	Left, Holds Number
	Tone        string
	Denies      bool
	Reset       string // "resets in 41 s"; "" if nothing is used
	Leased      string // how early it may deny; "" if the policy is exact
	// Remaining is in units, and ResetMillis in milliseconds.
	Remaining, ResetMillis int64
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// after returns the reset, to follow the remaining units.
func (l ExplainedLimit) after() string {
	if l.Reset == "" {
		return ""
	}
	return ", " + l.Reset
}
