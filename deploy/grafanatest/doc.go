// Package grafanatest checks the dashboard and the alerts of deploy/grafana
// with Prometheus' own parser and engine. It is a module of its own, because
// Prometheus would be the largest dependency of the product.
package grafanatest
