// Package admission bounds how many checks a node serves at the same time, and shares this
// capacity fairly between tenants.
//
// A check enters the Gate before the limiter decides it, and leaves the Gate after the response
// is written. While all slots are in use, checks wait in a queue of their tenant. When slots
// become free, the queues are served in turn. The number of waiting checks is bounded too: a
// check that may not wait is rejected with ErrOverloaded at once. The limiter's timeout starts
// after the wait, so waiting never leads to a failure mode.
//
// The type Slots bounds other requests that cause much work in the database, such as downloads
// and previews.
//
// The package imports only the standard library.
package admission
