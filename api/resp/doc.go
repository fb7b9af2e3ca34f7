// Package resp serves checks over RESP, the protocol of Redis, so that any Redis client can ask for a decision.
//
// The commands are HEADGATE.CHECK and CL.THROTTLE; commands for reservations, refunds and leases; AUTH and HELLO, which
// send the API key; and the commands that clients send when they connect. All checks that have arrived on a connection
// are decided as one batch. So a client that sends many checks before it reads the replies needs few calls to Redis.
//
// [Server] has its own parser, which bounds the size of a command before it reads the command. Decisions are made by
// [api.API], so that keys, limits, counts, and metrics are those of POST /v1/check.
package resp
