// Package nodes manages the reports of all nodes: release, revision, and the state of Redis, the database, and the
// backlog of counts. Any node can show the reports of all nodes.
//
//	node.go       Node: the report of one process; the Store contract
//	beacon.go     Beacon: writes the report every five seconds, and removes it at the end
//	overview.go   Service: the reports of all nodes together
//	warnings.go   the rules by which a node gets warnings
//	stopwatch.go  Stopwatch: latencies between two reports
//
// A report is not an edit: it changes no revision and writes no audit entry. Nothing depends on it. A node that
// cannot report continues to serve; other nodes show it as silent.
//
// # Clocks
//
// The clocks of nodes may differ. The database's clock sets the time at which a node was last seen, and the time of a
// census. So the time for which a node is silent is correct even if the node's clock is wrong. The times inside a
// report are those of the node's clock, and the report contains its own time too. Node.Ago computes ages from both,
// and Node.Skew is the difference of the clocks.
//
// The package must not depend on where reports are stored, how a node collects them, or how pages show them.
package nodes
