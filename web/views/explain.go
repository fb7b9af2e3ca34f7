package views

import "strconv"

// An Explain is the view of the page that explains how a request would be decided now.
type Explain struct {
	// Tabs are the tabs of the tenant. If the visitor selects the tenant in the form, there are none.
	Tabs   []Tab
	Action string // where the form goes
	Faults []Fault
	// AnyTenant says that the form has a field for the tenant. Tenants are suggestions for this field.
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

// An AttributeRow has the form fields for one attribute.
type AttributeRow struct{ Name, Value Input }

// An Explained is the explanation of how a request would be decided.
type Explained struct {
	Verdict string // the decision, as a sentence
	Allowed bool
	Status  int
	Reason  string
	// PassesAt is the time at which a denied request would be allowed, in RFC 3339. It is "" if there is no such
	// time.
	PassesAt string
	Degraded bool
	Answer   string // status line and headers of the HTTP response
	Plan     string
	Route    string
	Path     string // the normalized path; "" if it is the path that was entered
	List     *ExplainedList
	Policies []ExplainedPolicy
	// Listings has an entry for each attribute of the request. Its links add the attribute to a list.
	Listings []Listing
	// ExplainCurl and CheckCurl are curl commands that send the same request to the API.
	ExplainCurl, CheckCurl string
}

// A Listing has two links for the value of an attribute. They lead to the forms that add it to the allow list
// and to the deny list.
type Listing struct{ Attribute, Value, AllowURL, DenyURL string }

// An ExplainedList is the list entry that decided the request.
type ExplainedList struct {
	Name, Attribute, Value, Reason, URL string
	Ends                                Moment
}

// An ExplainedPolicy says what one policy of the plan decides about the request.
type ExplainedPolicy struct {
	Slug, Badge, Tone, Because, Mode string
	Applies                          bool
	Method, Path                     string
	Attributes                       []KeyFact
	// Key is the key under which the policy counts the request. It is empty if the policy counts the whole tenant.
	Key        []KeyFact
	Leased     bool // nodes lease quota of this policy, so the state is not exact
	ReplacedBy string
	// Override and Block describe the override and the block of the key. Each is "" if there is none.
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
	Over        string // what the policy does with a request over the limit; "" if the request is not over the limit
	Reset       string // "resets in 41 s"; "" if nothing is used
	RolledOver  string // "300 rolled over", or ""
	Granted     string // how many of the remaining units come from grants; "" if none
	Leased      string // how many units too early the limit may deny because of leases; "" if the state is exact
	// Remaining is in units. ResetMillis is in milliseconds.
	Remaining, ResetMillis int64
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// after returns the words after the remaining units: those about rolled-over units and about the reset.
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
