// Package admission bounds how many checks a node serves at once, and shares
// the places fairly between tenants.
//
// A check enters the Gate before the limiter decides it and leaves after its
// answer is written. While all slots are taken, checks wait: each tenant has a
// queue, and freed slots go to the queues in round robin. The waiting room is
// bounded; a check that finds no room gets ErrOverloaded at once. The time in
// the queue is time inside this node: no limiter deadline counts it, and no
// failure mode answers because of it.
//
// The package imports only the standard library.
package admission
