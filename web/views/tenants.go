package views

// A TenantHead contains the title and the tabs above every page of a tenant.
type TenantHead struct {
	Tabs      []Tab
	Suspended bool
	Settings  bool // the tabs belong to the settings, and not to a tenant
}

// A List has the fields that all pages with a list have.
type List[R any] struct {
	Head   TenantHead
	Notice string
	Rows   []R
	NewURL string // "" if the visitor must not add a row
	Next   string // address of the next page; "" on the last page
	Empty  Empty
}

// Tenants is the list of tenants.
type Tenants struct {
	List[ListedTenant]
	Saved              *SavedFilters
	Query              string
	Plan, Status, Sort Select
	Narrow             bool   // a filter is set
	Total              string // the sum over the list, or ""
	// Sorts has the links with which the columns name, requests, rate and created sort the list.
	Sorts    []SortLink
	FirstURL string // "" on the first page
}

// A SortLink sorts a list by a column.
type SortLink struct {
	URL     string
	Current bool
}

// A ListedTenant is one tenant in the list, with its counts of the last 24 hours.
type ListedTenant struct {
	Name, Slug, URL string
	Plan, PlanURL   string // PlanURL is "" if there is no page about the plan
	Suspended       bool
	Requests, Rate  Number
	Unmatched       Number // allowed requests that no policy matched
	Tone            string // color of the rate: "bad", "warn" or ""
	Near            ListedLimit
	Created         Moment
}

// A ListedLimit is the limit of a tenant that is nearest to exhaustion. If no limit of the
// whole tenant is in use, Policy is "".
type ListedLimit struct {
	Policy, Limit string
	Used          Number
	N, Most       int64
	Tone          string
}

// A TenantForm creates a tenant.
type TenantForm struct {
	Faults     []Fault
	Slug, Name Input
	Plan       Select
	NoPolicy   Choice
}

// A Confirm is a page that asks for confirmation before a change that cannot be undone.
type Confirm struct {
	Head        TenantHead
	Title       string
	Text        []string
	Facts       []Fact
	Action      string
	Button      string
	Bad         bool // the write deletes
	Back        string
	Hidden      []Hidden
	Faults      []Fault
	Inputs      []Input
	Typed       Input // field in which the visitor must type a name; no field if Name is ""
	Overlap     Select
	WithOverlap bool
	Also        Checks // check boxes for additional effects of the write; none if Name is ""
}

// A Fact is a name with a value.
type Fact struct{ Name, Value string }

// TenantSettings are the settings of a tenant.
type TenantSettings struct {
	Head     TenantHead
	Base     string // "/tenants/acme/settings"
	Notice   string
	Slug, ID string
	Created  Moment
	Updated  Moment
	Revision string
	Faults   []Fault
	Name     Input
	NoPolicy Choice
	Route    Choice
	Redact   Choice
	MaxKeys  Input
	Sample   Input
	Trace    Choice
	Zone     Input
	// BillingDay is the day of the month on which calendar months of limits begin.
	BillingDay Input
	Plan       string // slug, "" without one
	PlanURL    string
	PlanForm   Select
	Confirm    Input
	DelFaults  []Fault
	Suspended  bool
}

// A Stale is a page about two edits. It shows a visitor's edit next to the values that
// another person has stored since. The visitor chooses one value for each field.
type Stale struct {
	Head     TenantHead
	Action   string
	Back     string
	Revision string // revision of the stored values
	Fields   []StaleField
	Same     []Hidden // equal fields
	Updated  Moment
}

// A StaleField is one field that differs.
type StaleField struct {
	Name, Label         string
	Yours, Stored       string // for people
	YoursRaw, StoredRaw string // in the form
}

// A PlanChange compares the current plan of a tenant with another plan.
type PlanChange struct {
	Head     TenantHead
	Action   string
	Back     string
	From, To string // slugs; "" for no plan
	FromName string
	ToName   string
	Revision string
	Rows     []PlanChangeRow
	Notes    []string
	Faults   []Fault
}

// A PlanChangeRow is one policy of the current plan or of the new plan.
type PlanChangeRow struct {
	Policy        string
	What          string // "added", "removed", "changed", "same"
	Before, After []string
}

// columns returns the headings of the list. A heading with a link sorts the list.
func (l Tenants) columns() []Column {
	list := []Column{
		{Text: "Tenant"},
		{Text: "Plan"},
		{Text: "Status"},
		{Text: "Requests", Number: true},
		{Text: "429 rate", Number: true},
		{Text: "Nearest limit"},
		{Text: "Created"},
	}
	for i, at := range []int{0, 3, 4, 6} {
		if i < len(l.Sorts) {
			list[at].Head = sortHead(list[at].Text, l.Sorts[i])
			list[at].Sort = sortOrder(i, l.Sorts[i])
		}
	}
	return list
}

// sortOrder returns the value of aria-sort for a column. Names are sorted in ascending order.
// Numbers and times are sorted in descending order.
func sortOrder(column int, l SortLink) string {
	switch {
	case !l.Current:
		return ""
	case column == 0:
		return "ascending"
	}
	return "descending"
}
