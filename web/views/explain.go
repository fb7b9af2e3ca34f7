package views

import "strconv"

// An Explain is the view of the page that explains how a request would be decided.
type Explain struct {
	// Tabs are the tabs of the tenant. They are empty if the form has a field for the tenant.
	Tabs   []Tab
	Action string // where the form goes
	Faults []Fault
	// AnyTenant means that the form has a field for the tenant. Tenants are suggestions for
	// this field.
	AnyTenant          bool
	Tenant             Input
	Tenants            []Option
	Method, Path, Cost Input
	Rows               []AttributeRow
	Names              []string // of attributes, suggested
	CanMore            bool     // more rows fit
	// Answer is nil until the visitor enters a request.
	Answer *Explained
}

// An AttributeRow is one attribute of the form.
type AttributeRow struct{ Name, Value Input }

// An Explained is the explanation of how a request would be decided.
type Explained struct {
	Verdict string // the decision, as a sentence
	Allowed bool
	Status  int
	Reason  string
	// PassesAt is when a denied request would be allowed, in RFC 3339. It is "" if it never is.
	PassesAt string
	Degraded bool
	Answer   string // status line and headers of the HTTP answer
	Plan     string
	Route    string
	Path     string // the normalized path; "" if it equals the entered path
	List     *ExplainedList
	Policies []ExplainedPolicy
	// Listings are links that add an attribute of the request to a list, one for each
	// attribute.
	Listings []Listing
	// Commands that send the same request to the API with curl.
	ExplainCurl, CheckCurl string
}

// A Listing has the links to the forms that add the value of an attribute to the allow list and
// to the deny list.
type Listing struct{ Attribute, Value, AllowURL, DenyURL string }

// An ExplainedList is the list entry that decided the request.
type ExplainedList struct {
	Name, Attribute, Value, Reason, URL string
	Ends                                Moment
}

// An ExplainedPolicy is the result of one policy of the plan for the request.
type ExplainedPolicy struct {
	Slug, Badge, Tone, Because, Mode string
	Applies                          bool
	Method, Path                     string
	Attributes                       []KeyFact
	// Key is the counter key of the request. It is empty if the policy counts the whole tenant.
	Key        []KeyFact
	Leased     bool // nodes lease quota, so that the state is not exact
	ReplacedBy string
	// Override and Block describe the exceptions of the key. Each is "" if there is none.
	Override, OverrideURL        string
	Block, BlockURL, BlockReason string
	OverrideEnds, BlockEnds      Moment
	Limits                       []ExplainedLimit
	Links                        []Link
}

// A KeyFact is an attribute with its value.
type KeyFact struct {
	Name, Value string
	Missing     bool // the request does not have this attribute
}

// An ExplainedLimit is the current state of a limit for the request's key.
type ExplainedLimit struct {
	Name, Aloud string
	Used, Most  int64
	Left, Holds Number
	Tone        string
	Over        string // what the policy does because the request is over the limit; "" if it is not
	Reset       string // "resets in 41 s"; "" if nothing is used
	RolledOver  string // "300 rolled over", or ""
	Granted     string // how many of the units that are left come from grants; "" if none
	Leased      string // how many units too early the limit may deny because of leases; "" if it is exact
	// Remaining is a number of units. ResetMillis is a time in milliseconds.
	Remaining, ResetMillis int64
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// after returns the words about rolled over units and the reset, which the page shows after the remaining units.
func (l ExplainedLimit) after() string {
	text := ""
	if l.RolledOver != "" {
		text = ", " + l.RolledOver
	}
	if l.Reset != "" {
		text += ", " + l.Reset
	}
	return text
}
