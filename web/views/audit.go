package views

// An Audit is the view of the audit log: one page of its entries, newest first.
type Audit struct {
	Title, Lead string
	Notice      string
	Tabs        []Tab // of the tenant of the page
	Ranges      Ranges
	Filters     Filters
	Rows        []AuditRow
	// Tenants means that entries show their tenant. Chain means that they show their position
	// in the hash chain.
	Tenants, Chain bool
	NextURL        string // "" on the last page
	FirstURL       string // "" on the first page
	CSVURL         string
	CSVLimit       string // the maximum number of lines of a file
	Columns        []AuditFact
	// VerifyURL is the address that verifies the hash chain. It is "" if the visitor may not
	// verify it.
	VerifyURL string
	Verdict   *ChainVerdict // nil if this node has not verified the chain yet
	Empty     Empty
}

// An AuditFact is a name with a text. It describes an entry, a process, or a column of the
// downloaded file.
type AuditFact struct{ Name, Text string }

// AuditFacts is a list of properties, without those that have no text.
type AuditFacts []AuditFact

// Add adds a fact if its text is not empty.
func (l *AuditFacts) Add(name, text string) {
	if text != "" {
		*l = append(*l, AuditFact{Name: name, Text: text})
	}
}

// A ChainVerdict is the result of the last verification of the hash chain.
type ChainVerdict struct {
	Good bool
	Text string
	At   Moment
}

// An AuditRow is one entry of the log.
type AuditRow struct {
	URL  string // the page of the entry
	Seq  string // number in the chain; "" if the entry has none or the visitor must not see it
	When Moment
	// Icon and Kind describe the kind of actor. Who is the actor's name.
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
	More            int // number of changes that only the page of the entry lists
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
	Nothing       string // why no changes are shown; "" otherwise
}
