// Package resp serves checks over RESP, the protocol of Redis, so that any Redis client can ask for a decision.
//
// The commands are HEADGATE.CHECK and CL.THROTTLE, those of reservations, refunds and leases, AUTH and HELLO for the API
// key, and the commands that clients send when they connect. All checks that have arrived on a connection are decided as
// one batch. So a client that sends many checks before it reads the replies needs few calls to Redis.
//
// [Server] reads the protocol with its own parser, because it bounds the size of a command before it reads it. It
// decides through [api.API], so that keys, limits, counts, and metrics are those of POST /v1/check.
package resp
