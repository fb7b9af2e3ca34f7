// Package export returns CSV files of recorded data: the audit log, kept denials, and the usage of
// a tenant. The API and the dashboard send these files to clients.
package export
