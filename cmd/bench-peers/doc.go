// Command bench compares Headgate with other limiters on this machine, and writes the result into
// docs/performance.md:
//
//	make bench-peers
//
// make bench-ways measures the cost of a check for each integration in docs/gateways.md, with
// gateways and without.
//
// The command starts a private Redis and the services to compare, as processes with free loopback
// ports. It measures the contenders in rotation: each contender runs for a second or two, round
// after round. A ratio compares two contenders in the same round. The result is the median of the
// ratios of all rounds, because the speed of a shared machine changes from one minute to the next.
// docs/adr/0022-benchmarks-in-rotation.md has the reasons.
//
// The command is a separate Go module, so that the libraries that it measures are not dependencies
// of Headgate.
package main
