package views

// Overrides is the list of overrides of a tenant.
type Overrides struct {
	List[OverrideRow]
	Preview Precedence
}

// An OverrideRow is one override in the list.
type OverrideRow struct {
	Policy, For  string // "user 42", "addresses in 10.0.0.0/8", "every key"
	Numbers      []string
	Reason, By   string
	Ends         Moment
	Idle         string // why the override has no effect, or ""
	DeleteURL    string // "" if the visitor must not
	ChangeURL    string // "" if the visitor must not
	InForce      bool   // in a Precedence: this override applies
	SpecificNote string // in a Precedence, how specifically the override matches the key
}

// A Precedence shows which of several overrides applies to one key.
type Precedence struct {
	Action   string
	Policies []Option
	Policy   string
	Keys     []Input // the attributes of the policy
	Asked    bool
	Error    string
	Rows     []OverrideRow
	Limits   []string // the resulting limits of the key
}

// A PolicyPick is the first step of a form about one policy. In this step, the visitor selects the policy.
type PolicyPick struct {
	Head   TenantHead
	Title  string
	Lead   string
	Action string
	Back   string
	Hidden []Hidden
	Policy Select
	Empty  Empty // Title is "" if there are policies
}

// An OverrideForm creates or changes an override of one policy.
type OverrideForm struct {
	Head         TenantHead
	Title        string
	Button       string
	From         string // address to return to after the save; "": the list of overrides
	Version      string // version of the override that the form changes; "" for a new override
	Faults       []Fault
	Action, Back string
	PickURL      string // address of the page that selects another policy; "" if the form changes an override
	Policy       string
	Applies      string // what the policy matches and counts
	Scope        Choice
	Attribute    Select
	HasAttribute bool
	Value        Input
	How          Choice
	Factor       Input
	Limits       []OverrideLimit
	Reason       Input
	End          Ending
	Aloud        []string // the resulting limits
}

// An OverrideLimit has the form fields for one limit, and the limit in the plan.
type OverrideLimit struct {
	Name, Plan           string
	Quota, Burst, Window Input
	HasBurst             bool
}

// Lists has the allow list and the deny list of a tenant.
type Lists struct {
	List[ListRow]
	Base, Query string
	Which       Select
	Narrow      bool // a filter is set
}

// A ListRow is one entry.
type ListRow struct {
	Deny             bool
	Attribute, Value string
	Reason, By       string
	Ends             Moment
	Over             bool
	DeleteURL        string
}

// An EntryForm adds a value to a list.
type EntryForm struct {
	Head         TenantHead
	Faults       []Fault
	Action, Back string
	List         Choice
	Attribute    Input
	Value        Input
	Reason       Input
	End          Ending
}

// A BlockRow is one blocked key.
type BlockRow struct {
	Policy, Key string
	KeyURL      string // the page of the key, or ""
	Reason, By  string
	Ends        Moment
	Idle        string
	DeleteURL   string
}

// A GrantRow is one grant in the list.
type GrantRow struct {
	Policy     string // "requests, limit month"
	Key        string
	KeyURL     string // the page of the key, or ""
	Units      string
	Left       string // "" if the limiter did not answer
	Reason, By string
	Ends       Moment
	Idle       string
	DeleteURL  string
}

// A BoundForm is a form about one key of one policy. It blocks the key, tops it up, or resets its counters.
type BoundForm struct {
	Head         TenantHead
	Title, Lead  string
	Faults       []Fault
	Action, Back string
	PickURL      string
	Policy       string
	Applies      string
	Keys         []Input
	Lease        Input  // Name is "" in forms that are not about a lease
	Limit        Select // Name is "" in forms that are not about one limit
	Units        Input  // Name is "" in forms that are not about a grant
	Reason       Input
	HasEnd       bool
	End          Ending
	Button       string
	List         string // title of the list to which the form adds a row; "" for a reset
	Bad          bool
}

// A ReservationRow is one open reservation in the list.
type ReservationRow struct {
	ID, URL      string
	Limits       []ReservedLimit
	Since, Until Moment
}

// A ReservedLimit is one limit to which a reservation charged its cost.
type ReservedLimit struct {
	Policy, Limit  string
	Estimate, Cost string // "60 units", or "1 place"
	Words          string // all of it, for the list
}

// A ReservationView is the page about one reservation.
type ReservationView struct {
	Head    TenantHead
	Notice  string
	ID      string
	Ended   string // how the reservation ended, or ""
	Facts   []MomentFact
	Limits  []ReservedLimit
	Actions []Link // none if the reservation has ended, or if the visitor may not change it
}

// A MomentFact is a name with a time.
type MomentFact struct {
	Name  string
	Value Moment
}
