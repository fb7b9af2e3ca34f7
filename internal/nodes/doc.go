// Package nodes stores a report of each node and shows the reports of all nodes. A report
// contains the release and the revision of the node, and the state of Redis, the database, and
// the backlog of counts as the node sees them.
//
//	node_report.go        Node: the report of one process; the interface Store
//	node_json.go          the JSON form in which a report is stored
//	report_writer.go      Beacon: writes the report every five seconds, and removes it when the process stops
//	overview.go           Service: the reports of all nodes together
//	warnings.go           the rules by which a node gets warnings
//	latency_stopwatch.go  Stopwatch: latencies between two reports
//
// A report is not an edit: it raises no revision and writes no audit entry. No decision depends
// on a report. A node that cannot write its report continues to serve, and other nodes show it
// as silent.
//
// # Clocks
//
// The clocks of nodes may differ. The time at which a node was last seen, and the time of a
// Census, are times of the database's clock. So the time for which a node has been silent is
// correct even if the node's clock is wrong. The times in a report are times of the node's
// clock, and Node.At is the time of the report by that clock. Node.Ago computes the age of an
// event from both clocks. Node.Skew is the difference of the two clocks.
//
// The package must not depend on where reports are stored, how a node collects them, or how
// pages show them.
package nodes
