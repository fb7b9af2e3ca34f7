// Package usage tells what a tenant and its keys have left right now, without
// charging anything, and when it is used up at the present pace.
//
// A question comes in at Service.Tenant or Service.Key. The tenant, its plan and
// exceptions come from the snapshot; which keys are busy, and how fast they
// are charged, from what was counted; what they hold from the limiter, in one
// call for all of them. Service.Reset makes one key as new.
//
//	usage.go    what is told
//	service.go  Service: the questions
//	counted.go  what was counted: busy keys, and the pace of the last minutes
//	reset.go    the order of steps of a reset
//
// The package refuses to know HTTP, SQL, and how limits are counted: the
// arithmetic of limits is enforcement's.
package usage
