// Package load is a load generator. It sends HTTP/1.1 requests and measures the rate, the
// latency and the results of the responses. "headgate bench" and the module cmd/bench-peers use
// it.
//
// It has two modes. In a closed loop, each connection sends its next request after it has read
// the response to the previous one. This finds the highest rate. In an open loop, requests are
// due at fixed times, whether or not responses have arrived. The latency of a request is then
// measured from the time at which it was due. So latencies include the delays that a slow
// server causes for later requests (no coordinated omission).
//
// The package sends prepared bytes and parses only what it counts, because it runs on the same
// machine as the server that it measures. It must not import packages of the product, except
// package latency.
package load
