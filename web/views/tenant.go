package views

// TenantHome is the first page of a tenant: the remaining quota and the traffic.
type TenantHome struct {
	Head          TenantHead
	Name, Slug    string
	Plan, PlanURL string // Plan is "" if the tenant has none
	Version       string
	Notice        string
	CSVURL        string
	ShareURL      string // address of the form that shares the page, or ""
	Left          Left
	Beside        []Beside
	Ranges        Ranges
	Traffic       Traffic
}

// Left is the remaining quota of a tenant. For each policy, it has the remaining quota of some keys.
type Left struct {
	// Error says why the remaining quota is unknown. Otherwise it is "".
	Error string
	// Near has the limits that are nearest to exhaustion.
	Near     []NearLimit
	Empty    Empty // Title is "" if there are policies
	Policies []LeftPolicy
	// Counters is the estimated number of live counters, and MaxCounters the maximum number. Known
	// is false if the number of live counters is unknown. Crowded is a warning if the maximum is
	// nearly reached, or "".
	Counters, MaxCounters Number
	Known                 bool
	Crowded               string
}

// A LeftPolicy is one policy, with some of its keys.
type LeftPolicy struct {
	ID, Slug, Applies string
	Mode              string // "shadow" or "off"; "" if the policy is enforced
	Pace              string
	Whole             bool // the policy counts the whole tenant
	Keys              []LeftKey
	Note              string // says which keys are not shown
	HoldersURL        string // address of the page with the holders, for a concurrency limit of the whole tenant
}

// A LeftKey is one key with its limits.
type LeftKey struct {
	ID, Words, URL  string
	Override, Block string // in force for the key, or ""
	Limits          []LeftLimit
}

// A LeftLimit is the state of a limit for one key.
type LeftLimit struct {
	Aloud          string
	Used, Capacity Number
	N, Most        int64
	Tone           string // color of the bar: "", "warn", "bad"
	Ends           string // "used up in 12 min at 83 per minute"
	Reset          string // "resets in 43 s", or ""
}

// A NearLimit is a limit of one key that is nearly used up.
type NearLimit struct {
	Policy, Words, URL string
	Badge              string // "blocked", "override", or ""
	Limit              LeftLimit
}

// A Beside has the number of a tenant's exceptions of one kind, with a link to them.
type Beside struct {
	Label, Text, URL string
	Count            Number
	Next             Moment
	HasNext          bool
}

// A CountedKey is the view of the page about one counter key.
type CountedKey struct {
	Head        TenantHead
	Notice      string
	Policy      string
	Words       string
	Applies     string
	Left        Left
	Places      bool // the policy has a concurrency limit
	Holders     []Holder
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

// A Holder is a lease that holds places of a concurrency limit.
type Holder struct {
	Lease, Limit string
	Places       Number
	Ends         Moment
	RevokeURL    string // "" if the visitor may not revoke it
}

// A KeyDenial is one denial of a key.
type KeyDenial struct {
	At       Moment
	URL      string // of the decision
	Request  string // "GET /v1/search"
	Sentence string
	Wait     string
}

// open reports whether the section with the remaining quota is unfolded when the page loads. It
// is unfolded if it has only a message.
func (l Left) open() bool { return len(l.Policies) == 0 }

// summary returns the label of the foldable section with the remaining quota.
func (l Left) summary() string {
	if len(l.Policies) == 0 {
		return "State"
	}
	return "All limits of " + Quantity(int64(len(l.Policies)), "policy", "policies") + " and their busiest keys"
}
