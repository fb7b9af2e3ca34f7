// Package admission bounds how many checks a node serves at the same time, and shares
// this capacity fairly between tenants.
//
// A check enters the Gate before the limiter decides it, and leaves the Gate after its
// answer is written. While all slots are in use, checks wait. Each tenant has a queue,
// and free slots are given to the queues in round robin. The number of waiting checks
// is bounded too; if no more may wait, a check is denied with ErrOverloaded at once.
// The time in a queue does not count for the limiter's timeout, so waiting never leads
// to a failure mode.
//
// Slots bound requests other than checks that need much of the database, such as downloads
// and previews.
//
// The package imports only the standard library.
package admission
