package views

// TenantHome is the first page of a tenant: what is left now, and its traffic.
type TenantHome struct {
	Head          TenantHead
	Name, Slug    string
	Plan, PlanURL string // Plan "": it follows none
	Version       string
	Notice        string
	CSVURL        string
	Left          Left
	Beside        []Beside
	Ranges        Ranges
	Traffic       Traffic
}

// Left is what a tenant and its keys have left at an instant.
type Left struct {
	// Error says why it is not known; "": it is.
	Error    string
	Empty    Empty // Title "": there are policies
	Policies []LeftPolicy
}

// A LeftPolicy is one policy with the keys that are shown of it.
type LeftPolicy struct {
	ID, Slug, Applies string
	Mode              string // "shadow" or "off"; "" when it is enforced
	Counted           string // "for each user"
	Pace              string
	Whole             bool // the whole tenant is the one key
	Keys              []LeftKey
	Note              string // what is not shown, and why
}

// A LeftKey is one key with its limits.
type LeftKey struct {
	ID, Words, URL  string
	Override, Block string // what is in force for it; "": nothing
	Limits          []LeftLimit
	Pace            string
}

// A LeftLimit is what one limit holds for one key.
type LeftLimit struct {
	Name, Aloud    string
	Used, Capacity Number
	N, Most        int64
	Tone           string // of the bar: "", "warn", "bad"
	Ends           string // "used up in 12 min at 83 per minute"
	Reset          string // "as new in 43 s"; "": it is
	Left           Number
}

// A Beside is what is in force beside the plan.
type Beside struct {
	Label, Text, URL string
	Count            Number
	Next             Moment
	HasNext          bool
}

// A CountedKey is the page of one counted key.
type CountedKey struct {
	Head        TenantHead
	Notice      string
	Policy      string
	Words       string
	Applies     string
	Left        Left
	Actions     []Link
	Ranges      Ranges
	Chart       Chart
	HasChart    bool
	ChartNote   string
	Denials     []KeyDenial
	DenialsNote string
	MoreURL     string
	Curl        string
}

// A KeyDenial is one refusal of a key.
type KeyDenial struct {
	At       Moment
	URL      string // of the decision; "": it has no page
	Request  string // "GET /v1/search"
	Sentence string
	Wait     string
}
