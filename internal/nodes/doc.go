// Package nodes holds the reports of all nodes: release, revision, Redis, database,
// and backlog. Any node can show all of them.
//
//	node.go       Node: the report of one process; Store
//	beacon.go     Beacon: reports every five seconds, and removes the report at the end
//	overview.go   Service: all nodes together
//	warnings.go   the rules by which a node gets warnings
//	stopwatch.go  Stopwatch: latencies between two reports
//
// A report is not an edit: it changes no revision and writes no audit entry. Nothing
// depends on it. A node that cannot report continues to serve; the others show it as
// silent.
//
// # Clocks
//
// The clocks of nodes may differ. The database's clock sets the time at which a node
// was last seen, and the time of a census, so the silence of a node is correct
// whatever its own clock shows. The times inside a report are those of the node's
// clock, with the time of the report beside them: Node.Ago computes ages from both,
// and Node.Skew is the difference of the clocks.
//
// The package must not depend on where reports are stored, how a node collects them,
// or how pages show them.
package nodes
