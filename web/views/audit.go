package views

// An Audit is the view of the audit log: one page of its entries, newest first.
type Audit struct {
	Title, Lead string
	Notice      string
	Tabs        []Tab // tabs of the tenant to which the page belongs
	Ranges      Ranges
	Filters     Filters
	Rows        []AuditRow
	// Tenants says that entries show their tenant. Chain says that entries show their
	// position in the hash chain.
	Tenants, Chain bool
	NextURL        string // "" on the last page
	FirstURL       string // "" on the first page
	CSVURL         string
	CSVLimit       string // the maximum number of lines in a downloaded file
	Columns        []AuditFact
	// VerifyURL is the address of the form that verifies the hash chain. It is "" if the
	// visitor may not verify the chain.
	VerifyURL string
	Verdict   *ChainVerdict // nil if this node has not verified the chain yet
	Empty     Empty
}

// An AuditFact is a name with a text. It is a property of an entry or of a process, or the
// description of a column in the downloaded file.
type AuditFact struct{ Name, Text string }

// AuditFacts is a list of properties. It has no property without a text.
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

// An AuditRow is one entry of the audit log.
type AuditRow struct {
	URL  string // the page of the entry
	Seq  string // number in the chain; "" if the entry has none, or if the visitor must not see it
	When Moment
	// Icon and Kind describe the kind of the actor. Who is the name of the actor.
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
	More            int // number of changes that are not in the list, but on the page of the entry
}

// A FieldChange is one field that changed.
type FieldChange struct {
	Field string // "policies[api].limits[l1].quota"
	// What is "added", "removed" or "changed".
	What          string
	Before, After string
}

// An AuditLine is the page about one entry.
type AuditLine struct {
	Tabs          []Tab
	Row           AuditRow
	Back          string
	Facts         []AuditFact
	Before, After string // JSON, indented; "" for none
	Nothing       string // why no changes are shown; "" otherwise
}
