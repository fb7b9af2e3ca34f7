// Package lease answers checks of leased policies from quota that this node
// drew ahead, so that they cost no round trip. It stands between the engine and
// a limiter that is an [enforcement.Drawer], and it imports neither.
//
// A request enters through [Limiter.Take]. Of each leased charge it takes what
// the node holds. What is missing, and every charge that is not leased, goes to
// the shared limiter in one request. If that request is not granted, the node
// keeps what it took. [Limiter.Run] draws quota in the background and returns
// what is not used.
//
// The guarantee is that no more is allowed than one exact limiter would allow:
//
//   - A unit is charged in the shared limiter before the node may spend it.
//   - A node spends no unit after its lot has ended. It takes the shared
//     limiter's clock to be the instant of a reply plus the time since the
//     request for that reply was sent, which is never too early, and adds a
//     margin for clocks that run at different speeds.
//   - A node spends nothing after its wall clock and its monotonic clock have
//     moved apart since the draw: the machine was suspended.
//   - A draw whose reply was lost is not repeated, and its units are not spent.
//   - Force is never charged to a lease. Changed numbers end a lease.
//
// The price is that a check may be denied early, by at most what other nodes
// hold: see [enforcement.Meter.LeaseBatch]. After a reset, what other nodes
// hold of the old quota may still be spent.
package lease
