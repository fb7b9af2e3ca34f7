// Package lease implements an enforcement.Limiter that decides checks of leased policies
// without a call to the shared limiter. It spends quota that this node drew in advance
// from the shared limiter, which is an [enforcement.Drawer].
//
// A request enters at [Limiter.Take], which spends the node's quota on the leased
// charges. For the missing units and for all charges that are not leased, Take sends a
// second request to the shared limiter. If the shared limiter does not grant this
// request, Take puts the node's quota back. [Limiter.Run] draws quota in the background
// and returns unused quota to the shared limiter.
//
// All nodes together never allow more than one exact limiter would allow:
//
//   - The shared limiter charges a unit before the node may spend it.
//   - The units of a draw are a lot, which ends at a time of the shared limiter's clock.
//     A node spends no unit after its lot has ended. It estimates that clock: the time in the
//     last reply, plus the time since the request for that reply was sent. This estimate
//     is never behind the clock. A margin allows for clocks with different rates.
//   - A node spends nothing if its wall clock and its monotonic clock have diverged
//     since the draw, because the machine was suspended.
//   - A draw whose reply was lost is not repeated, and its units are not spent.
//   - A check in mode Force never uses leased quota. A change of the quota ends a lease.
//
// A check may be denied although units are left, because other nodes hold them.
// [enforcement.Meter.LeaseBatch] bounds the number of these units. After a reset, other
// nodes may still spend units that they drew before.
package lease
