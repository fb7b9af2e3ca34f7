// Package configuration exports and applies plans, tenants, overrides and lists as one document, so
// that people can keep them in files under version control.
//
// Service.Export returns a document with everything that exists. Service.Apply changes what differs
// from a document, all of it in one transaction or nothing. Applying an exported document changes
// nothing. Both call the services of plans, tenants and exceptions, which validate each change and
// write the audit log. API keys, members, blocks and drafts are not in a document. The package must
// not depend on HTTP, SQL, or a file format.
package configuration
