// Package proxytest starts gateways with the recipes of deploy/ in front of a Headgate and an
// upstream. It also compares Headgate with the service of envoyproxy/ratelimit. It is a separate
// Go module, because its tests need the gateways and that service.
package proxytest
