package views

// An Audit is a page of lines of the log, newest first.
type Audit struct {
	Title, Lead string
	Tabs        []Tab // of the tenant whose lines they are
	Ranges      Ranges
	Filters     Filters
	Rows        []AuditRow
	// Tenants: lines name their tenant; Chain: they show their place in the chain.
	Tenants, Chain bool
	NextURL        string // "" on the last page
	FirstURL       string // "" on the first page
	CSVURL         string
	CSVLimit       string // how many lines a file has at most
	Columns        []AuditFact
	// VerifyURL is where the chain is verified; "": the reader may not.
	VerifyURL string
	Verdict   *ChainVerdict // nil: this node has not verified it
	Empty     Empty
}

// An AuditFact is a name with a text: of a line, or a column of the file.
type AuditFact struct{ Name, Text string }

// A ChainVerdict is what a walk through the chain found.
type ChainVerdict struct {
	Good bool
	Text string
	At   Moment
}

// An AuditRow is one line of the log.
type AuditRow struct {
	URL  string // the line's own page
	Seq  string // "" outside the chain, or when it is not shown
	When Moment
	// Icon and Kind say what kind of actor it was, Who which.
	Icon, Kind, Who string
	Address         string // "" when it is not known, or not shown
	RequestID       string
	Words           string // "published the plan"
	Action          string // "plan.publish"
	Object          string
	ObjectURL       string // "": it has no page
	Tenant          string
	TenantURL       string
	Changes         []FieldChange
	More            int // changes that only the line's own page shows
}

// A FieldChange is one field that is not as it was.
type FieldChange struct {
	Field string // "policies[api].limits[l1].quota"
	// What is "added", "removed" or "changed".
	What          string
	Before, After string
}

// An AuditLine is the page of one line.
type AuditLine struct {
	Tabs          []Tab
	Row           AuditRow
	Back          string
	Facts         []AuditFact
	Before, After string // JSON, indented; "" for none
	Nothing       string // why there is nothing to compare; "": there is
}
