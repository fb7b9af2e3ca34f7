package views

// An Audit is a page of entries of the log, newest first.
type Audit struct {
	Title, Lead string
	Tabs        []Tab // of the tenant of the page
	Ranges      Ranges
	Filters     Filters
	Rows        []AuditRow
	// Tenants is set if entries name their tenant, and Chain if they show their place
	// in the chain.
	Tenants, Chain bool
	NextURL        string // "" on the last page
	FirstURL       string // "" on the first page
	CSVURL         string
	CSVLimit       string // the maximum number of lines of a file
	Columns        []AuditFact
	// VerifyURL verifies the chain. It is "" if the reader must not.
	VerifyURL string
	Verdict   *ChainVerdict // nil: this node has not verified the chain
	Empty     Empty
}

// An AuditFact is a name with a text: of an entry, of a process, or a column of the
// file.
type AuditFact struct{ Name, Text string }

// AuditFacts are facts that are not empty.
type AuditFacts []AuditFact

// Add adds a fact if its text is not empty.
func (l *AuditFacts) Add(name, text string) {
	if text != "" {
		*l = append(*l, AuditFact{Name: name, Text: text})
	}
}

// A ChainVerdict is the result of the last verification of the chain.
type ChainVerdict struct {
	Good bool
	Text string
	At   Moment
}

// An AuditRow is one entry of the log.
type AuditRow struct {
	URL  string // the page of the entry
	Seq  string // "" outside the chain, or if it is not shown
	When Moment
	// Icon and Kind are the kind of actor. Who is the name of the actor.
	Icon, Kind, Who string
	Address         string // "" if it is unknown or not shown
	RequestID       string
	Words           string // "published the plan"
	Action          string // "plan.publish"
	Object          string
	ObjectURL       string // "": it has no page
	Tenant          string
	TenantURL       string
	Changes         []FieldChange
	More            int // number of changes that only the page of the entry shows
}

// A FieldChange is one field that changed.
type FieldChange struct {
	Field string // "policies[api].limits[l1].quota"
	// What is "added", "removed" or "changed".
	What          string
	Before, After string
}

// An AuditLine is the page of one entry.
type AuditLine struct {
	Tabs          []Tab
	Row           AuditRow
	Back          string
	Facts         []AuditFact
	Before, After string // JSON, indented; "" for none
	Nothing       string // why there is nothing to compare; "" otherwise
}
