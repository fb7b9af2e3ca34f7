// Package export writes what Headgate records as CSV files: the audit log, recorded denials, and the usage of a tenant.
// The API and the dashboard serve the same files.
package export
