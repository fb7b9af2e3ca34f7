// Package grafanatest tests the dashboard and the alerts of deploy/grafana with the parser and
// engine of Prometheus. It is a separate Go module, because Prometheus would be the largest
// dependency of the product.
package grafanatest
