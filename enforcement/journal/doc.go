// Package journal stores the states of durable counters in the database, so that used units
// stay used if the limiter loses its data.
//
// A [Journal] is a Limiter in front of another Limiter. It takes the state of each durable
// counter from the outcomes, and keeps it in memory. In the background, [Journal.Run] writes
// the states that changed to a [Store]. So a check makes no database query. After a loss of
// data, the limiter reads the stored states back before it makes the first durable decision:
// package inprocess by [Journal.Restore], and package redis by KeepRestored.
//
// docs/adr/0036-durable-limits.md has the reasons. This package must not depend on a database
// or on Redis.
package journal
