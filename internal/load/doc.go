// Package load sends HTTP/1.1 requests and measures their answers: the rate,
// the latency, and what the answers say. It is the load generator of
// "headgate bench" and of the module bench.
//
// It has two modes. In a closed loop, each connection sends its next request
// when it has read an answer, which finds the highest rate. In an open loop,
// requests are due at fixed moments, whether or not answers have come, and a
// latency counts from the moment at which its request was due. Delays of the
// server are therefore not left out of the latencies (coordinated omission).
//
// It writes prepared bytes and reads only what it counts, because it shares
// the machine with the server that it measures. It must not import packages of
// the product, except package latency.
package load
