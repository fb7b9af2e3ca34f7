package views

// A System is how the nodes and what they keep things in are.
type System struct {
	Fleet    Fleet
	Facts    []AuditFact // of the process that serves the page
	Problems []SystemProblem
}

// A Fleet is the nodes; the stream sends it again.
type Fleet struct {
	Headline string // "3 nodes, all well, one version, revision 118"
	Tone     string // "good", "warn", "bad"
	Hint     string // what there is to know of it; "": nothing
	Nodes    []FleetNode
}

// A FleetNode is one process.
type FleetNode struct {
	ID, Name string
	This     bool   // it serves the page
	Level    string // "well", "note", "warning", "alarm"
	Tone     string // of the level
	Silent   bool
	Verdicts []FleetVerdict
	Facts    []FleetFact
}

// A FleetVerdict is one thing that is not as it should be.
type FleetVerdict struct{ Level, Tone, Text string }

// A FleetFact is one number or word of a node.
type FleetFact struct {
	Name  string
	Value Number
	Note  string
	Tone  string
}

// A SystemProblem is a row that this node cannot use as it is stored.
type SystemProblem struct {
	Kind, Name, URL string
	Why, What       string // what to do
	Since           Moment
	Kept            bool
}
