// Package nodes stores a report of each node and shows the reports of all nodes: release, revision,
// and the state of Redis, the database, and the backlog of counts.
//
//	node_report.go        Node: the report of one process; the interface Store
//	node_json.go          the JSON form in which a report is stored
//	report_writer.go      Beacon: writes the report every five seconds, and removes it when the process stops
//	overview.go           Service: the reports of all nodes together
//	warnings.go           the rules by which a node gets warnings
//	latency_stopwatch.go  Stopwatch: latencies between two reports
//
// A report is not an edit: it raises no revision and writes no audit entry. No decision depends on
// it. A node that cannot report continues to serve, and other nodes show it as silent.
//
// # Clocks
//
// The clocks of nodes may differ. The time at which a node was last seen, and the time of a Census,
// are times of the database's clock. So the time for which a node has been silent is correct even
// if its own clock is wrong. The times in a report are times of the node's clock, and the report
// has its own time too. Node.Ago computes the age of an event from both clocks, and Node.Skew is
// their difference.
//
// The package must not depend on where reports are stored, how a node collects them, or how pages
// show them.
package nodes
