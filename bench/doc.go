// Command bench compares Headgate with other limiters on this machine, and
// writes the result into docs/performance.md:
//
//	make bench-peers
//
// It starts one private Redis and the services that take part, each as a
// process of its own on free loopback ports. The contenders take turns of a
// second or two, round after round. A ratio is taken within a round, and the
// median over the rounds counts, because a shared machine changes its speed
// from one minute to the next. docs/adr/0022-benchmarks-in-rotation.md has the reasons.
//
// It is a module of its own, so that the libraries it measures do not become
// dependencies of Headgate.
package main
