// Package nodes is what every node says of itself, so that any of them can show
// all: which release it runs, which revision it has in force, whether Redis
// answers it, how long the database takes, and what waits in it.
//
//	node.go       Node: what one process says; Store: where it says so
//	beacon.go     Beacon: says it every five seconds, and takes it back at the end
//	overview.go   Service: all nodes together
//	verdict.go    the rules of what is not well, in words
//	stopwatch.go  Stopwatch: how long calls take, between two reports
//
// A report is no edit: it raises no revision, leaves no audit line and tells
// nobody. Nothing depends on it. A node that cannot report goes on as it is, and
// is called silent by the others.
//
// # Clocks
//
// Each node has a clock of its own, and they may disagree. When a node was seen
// is told by the database's clock, and so is the moment at which all are read:
// how long a node is silent is right whatever its clock shows. What a node says
// itself is by its own clock, with the time of saying beside it: an age is
// computed from those two (Node.Ago), and the difference of the clocks is Node.Skew.
//
// The package refuses to know where reports are kept, how what they say is
// found out, and how it is drawn.
package nodes
