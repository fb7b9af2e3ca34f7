package views

import "time"

// A Denials is a page of kept refusals.
type Denials struct {
	Title, Lead string
	Tabs        []Tab // of the tenant that it is of
	Ranges      Ranges
	Filters     Filters
	Find        FilterField // a decision id
	List        DenialList
	// Event is what the stream replaces: "denials", the list; "news", how many came
	// since, while the page stands still; "": there is no stream.
	Event string
	// Older and Newest lead to other pages of the list; "": there are none.
	OlderURL, NewestURL string
}

// A DenialList is what of a page of refusals changes.
type DenialList struct {
	Rows    []Denial
	Tenants bool // rows name their tenant
	Summary string
	Empty   Empty // what to say without any
}

// A Denial is one refusal in a list.
type Denial struct {
	ID, URL           string
	Time              Stamp
	Tenant, TenantURL string
	Method, Path      string
	Policy, Limit     string
	Reason            ReasonWords
	Parts             []KeyPart
	MoreParts         int // that are not shown
	Redacted          bool
	RetryAfter        Number
	Degraded          bool
}

// A Stamp is an instant as a log shows it: the time, with the day when it is
// another one.
type Stamp struct{ ISO, Exact, Text string }

// NewStamp words an instant as seen at now.
func NewStamp(t, now time.Time) Stamp {
	t, now = t.UTC(), now.UTC()
	s := Stamp{ISO: t.Format(time.RFC3339), Exact: t.Format("2 January 2006, 15:04:05.000 UTC"), Text: t.Format("15:04:05")}
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		s.Text = t.Format("2 Jan 15:04:05")
	}
	return s
}

// ReasonWords are the reason of a refusal for people.
type ReasonWords struct {
	Text string
	Tone string // "bad", "warn", "violet"; "": quiet
}

// A DenialPage is one refusal, explained.
type DenialPage struct {
	Tabs   []Tab
	ID     string
	Reason ReasonWords
	Status string // "429"
	// Sentence says why it was refused, and Then when it would have passed.
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

// A DenialFact is one thing that is known of a refused request.
type DenialFact struct {
	Name, Value, URL string
	Mono             bool
}

// A DenialPolicy is what one policy of the plan had to say.
type DenialPolicy struct {
	Slug    string
	Outcome ReasonWords // "refused", "passed", "did not apply"
	Why     string
	Limits  []DenialLimit
}

// A DenialLimit is what one limit held when it was asked.
type DenialLimit struct {
	Name       string // "" when the policy has one
	Numbers    string // "5 per minute"
	State      string // "5 of 5 counted, this request costs 1"
	Then       string // "would pass after 41 s"
	Used, Most int64
	Tone       string
}

// A DenialAction is what can be done about it.
type DenialAction struct {
	Text, Hint, URL, Icon string
}

// newDenials is the text of the link to denials that are newer than the page.
func newDenials(n int, more bool) string {
	return when(more, "More than ") + Count(int64(n)).Text + " new: show them"
}
