// Package proxytest starts gateways with the recipes of deploy/ in front of a Headgate and an
// upstream. It is a separate Go module, because its tests need the gateways.
package proxytest
