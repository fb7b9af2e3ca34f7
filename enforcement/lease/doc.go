// Package lease implements an enforcement.Limiter that decides checks of leased
// policies with quota that this node drew ahead, without a round trip. It draws the
// quota from a shared limiter, which is an [enforcement.Drawer].
//
// A request enters at [Limiter.Take], which spends the node's quota on the leased
// charges. One request to the shared limiter has the missing units and all charges that
// are not leased. If the shared limiter does not grant it, the spent quota returns to
// the node. [Limiter.Run] draws quota in the background and gives unused quota back.
//
// The guarantee is that no more is allowed than one exact limiter would allow:
//
//   - A unit is charged in the shared limiter before the node may spend it.
//   - A node spends no unit after its lot has ended. It estimates the shared limiter's
//     clock as the time in a reply plus the time since the request for that reply was
//     sent. This estimate is never early. A margin covers clocks of different speeds.
//   - A node spends nothing if its wall clock and its monotonic clock have moved
//     apart since the draw, because the machine was suspended.
//   - A draw whose reply was lost is not repeated, and its units are not spent.
//   - Force is never charged to a lease. Changed numbers end a lease.
//
// A check may be denied early, because other nodes hold units:
// [enforcement.Meter.LeaseBatch] bounds their number. After a reset, other nodes may
// still spend units of the old quota.
package lease
