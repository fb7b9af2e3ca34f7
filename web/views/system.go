package views

// A System has the state of the nodes, and of the stores that they use.
type System struct {
	Fleet    Fleet
	Facts    []AuditFact // facts about the process that serves the page
	Problems []SystemProblem
	// Unlimited has the number of tenants without a plan, and the number of checks that no
	// policy matched.
	Unlimited []Fact
}

// A Fleet is the list of nodes on the System page. Live updates replace the list.
type Fleet struct {
	Headline string // "3 nodes, all healthy, one version, revision 118"
	Tone     string // "good", "warn", "bad"
	Hint     string // a hint about all nodes; "": none
	Nodes    []FleetNode
}

// A FleetNode is the state of one node.
type FleetNode struct {
	ID, Name string
	This     bool   // the node serves the page
	Level    string // "healthy", "note", "warning", "alarm"
	Tone     string // of the level
	Silent   bool
	Verdicts []FleetVerdict
	Facts    []FleetFact
}

// A FleetVerdict is one problem of a node, with its severity.
type FleetVerdict struct{ Level, Tone, Text string }

// A FleetFact is one value of a node.
type FleetFact struct {
	Name  string
	Value Number
	Note  string
	Tone  string
}

// A SystemProblem is a stored object that this node cannot use, such as a plan.
type SystemProblem struct {
	Kind, Name, URL string
	Why, What       string // what to do
	Since           Moment
	Kept            bool
}
