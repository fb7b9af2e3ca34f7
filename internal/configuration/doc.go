// Package configuration reads and changes plans, tenants, overrides and lists as one document, so that people keep
// them in files under version control.
//
// Service.Export returns the document of what exists. Service.Apply changes what differs from a document, in one
// transaction or not at all. Applying an exported document changes nothing. Both call the services of plans, tenants
// and exceptions, which validate each change and write the audit log. API keys, members, blocks and drafts are not part
// of a document. The package must not depend on HTTP, SQL, or a file format.
package configuration
