package views

// Overrides are other numbers that hold for a tenant for a time.
type Overrides struct {
	List[OverrideRow]
	Preview Precedence
}

// An OverrideRow is one override.
type OverrideRow struct {
	Policy, For  string // "user 42", "addresses in 10.0.0.0/8", "every key"
	Numbers      []string
	Reason, By   string
	Ends         Moment
	Idle         string // why it has no effect; "" when it has one
	DeleteURL    string // "" for those who may not
	InForce      bool   // of a precedence: the one that wins
	SpecificNote string // of a precedence: why it stands where it stands
}

// A Precedence shows which override wins for one key.
type Precedence struct {
	Action   string
	Policies []Option
	Policy   string
	Keys     []Input // the values of the policy; none before one is chosen, or of the whole tenant
	Asked    bool
	Error    string
	Rows     []OverrideRow
	Limits   []string // read aloud, as they hold for this key
}

// A PolicyPick is the first step of a form that is about one policy.
type PolicyPick struct {
	Head   TenantHead
	Title  string
	Lead   string
	Action string
	Back   string
	Hidden []Hidden
	Policy Select
	Empty  Empty // Title "": there are policies
}

// An OverrideForm makes an override of one policy.
type OverrideForm struct {
	Head         TenantHead
	Faults       []Fault
	Action, Back string
	PickURL      string // where to choose another policy
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
	Aloud        []string // what the limits become, read aloud
}

// An OverrideLimit is the fields of one limit, with what the plan has.
type OverrideLimit struct {
	Name, Plan           string
	Quota, Burst, Window Input
	HasBurst             bool
}

// Lists are the allow and the deny list of a tenant.
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

// An EntryForm puts a value on a list.
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
	KeyURL      string // the key's page; "" when it has none
	Reason, By  string
	Ends        Moment
	Idle        string
	DeleteURL   string
}

// A BoundForm is about one key of one policy: a block of it, or a reset.
type BoundForm struct {
	Head         TenantHead
	Title, Lead  string
	Faults       []Fault
	Action, Back string
	PickURL      string
	Policy       string
	Applies      string
	Keys         []Input
	Reason       Input
	HasEnd       bool
	End          Ending
	Button       string
	List         string // the title of the list that the form adds to; "" for a reset
	Bad          bool
}
