// Package configuration exports and applies plans, tenants, overrides and lists as one document, so
// that people can keep them in files under version control.
//
// Service.Export returns a document with everything that exists. Service.Apply makes the stored
// objects equal to a document. It makes all changes in one transaction, or none. If it applies an
// exported document to the same objects, it changes nothing. Both methods call the services of
// plans, tenants and exceptions, which validate each change and write the audit log. A document
// does not contain API keys, members, blocks or drafts. The package must not depend on HTTP, SQL,
// or a file format.
package configuration
