package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/store"
)

// wide has the functions whose statements reach rows of a tenant without naming
// it in their WHERE, each with its reason.
var wide = map[string]string{
	// Snapshots and the log hold all tenants.
	"changes": snapshots, "since": snapshots, "exceptionChanges": snapshots,
	"walkLines": "the chain goes through all lines", "verifyAudit": "the chain goes through all lines",
	// The system works on all of them.
	"expireDue": system, "removePiece": system, "remove": system, "refusalsBefore": system, "pruneAllowedOfTenants": system, "tenantsIn": system, "sketchIDs": system,
	"AddKeyUses": system, "ReadJournal": system, "Watched": system, "AllMaintenances": system, "Advance": system, "ClaimDeliveries": system,
	"EndAttempt": system, "PruneAlerts": system,
	"DeleteRule": "it has deleted the owner's rule, whose id is unique over all tenants",
	// What the operator reads is of all, or of the one that the filter has.
	"Counts": filtered, "SumCounts": filtered, "Sketches": filtered, "Refusal": filtered, "refusalRowsFor": filtered,
	"AuditEntries": filtered, "AuditEvents": filtered, "narrowed": filtered, "Users": filtered, "Invitations": filtered,
	"SavedFiltersOf": filtered,
	"queryPage":      "its callers are checked themselves",
	"Empty":          "whether there is anything at all",
	// The tenants themselves.
	"Tenant": itself, "Tenants": itself, "tenant": itself,
	// Whoever has the secret, or the address, is yet to be told apart.
	"oneUser": secret, "Session": secret, "Invitation": secret, "AcceptInvitation": secret, "MailInvitation": system, "addSession": secret,
	"RenewSession": secret, "noteSeen": secret, "Pending": secret, "ConfirmSession": secret,
	"OpenSharedLink": secret, "noteLinkUsed": secret,
	// People are held against their tenant once they are read: by the services,
	// by UpdateUser and by mayInvite.
	"user": person, "ownerOf": person, "changeUser": person, "DeleteUser": person, "endAccess": person,
	"CreateSavedFilter": person,
	"endSessions":       person,
	"Sessions":          person, "EndSession": person,
	// What is said of all people.
	"emailTaken": "an address is unique over all tenants", "refuseSetUp": "whether there is anybody at all",
	"keepAnOwner": "owners are the operator's", "managersBeside": "only keys without a tenant",
	"endLinksOf": "a key's id is unique over all tenants, and its edit has held the key against its tenant",
}

const (
	snapshots = "a snapshot has all tenants"
	system    = "the system works on the rows of all tenants: no caller chooses them"
	filtered  = "the operator reads all; for a tenant its caller puts it into the filter"
	itself    = "the row is the tenant"
	secret    = "the caller has a token or an address, and learns from the row whose it is"
	person    = "the caller has read the person and held it against its tenant"
)

// tenantTables are those whose rows belong to a tenant: by a column, or through
// their user.
func tenantTables(t *testing.T) map[string]bool {
	t.Helper()
	url, path := newFile(t)
	migrated(t, store.Config{URL: url})
	tables := map[string]bool{"sessions": true}
	for _, c := range columnsOf(t, file(t, path)) {
		if c.Name == "tenant_id" || c.Name == "tenant" {
			tables[c.Table] = true
		}
	}
	return tables
}

var (
	touched = regexp.MustCompile(`(?i)\b(?:FROM|JOIN|UPDATE)\s+([a-z_]+|\{[^}]*\})`)
	named   = regexp.MustCompile(`(?is)\bWHERE\b.*\btenant(?:_id)?\s*(?:=|IS NOT DISTINCT FROM)\s*\$`)
)

// sqlText returns the text of a string expression. Parts that are not literals are in
// braces.
func sqlText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, leftOK := sqlText(e.X)
		right, rightOK := sqlText(e.Y)
		return left + right, e.Op == token.ADD && (leftOK || rightOK)
	case *ast.Ident:
		return "{" + e.Name + "}", false
	case *ast.SelectorExpr:
		return "{" + e.Sel.Name + "}", false
	}
	return "{call}", false
}

// statements gives the SQL texts of a function, and "FROM table" for each page.
func statements(f *ast.FuncDecl) (list []string) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if p, ok := n.(*ast.CompositeLit); ok && len(p.Elts) > 1 {
			if name, ok := p.Type.(*ast.Ident); ok && name.Name == "page" {
				table, _ := sqlText(p.Elts[1])
				list = append(list, "FROM "+table)
				return false
			}
		}
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := sqlText(e)
		if ok && touched.MatchString(text) {
			list = append(list, text)
		}
		return !ok
	})
	return list
}

// filtersByTenant reports whether a function always adds the tenant to its filter.
func filtersByTenant(f *ast.FuncDecl) bool {
	for _, s := range f.Body.List {
		call, ok := s.(*ast.ExprStmt)
		if !ok {
			continue
		}
		if c, ok := call.X.(*ast.CallExpr); ok && len(c.Args) > 0 {
			if text, ok := sqlText(c.Args[0]); ok && text == "tenant_id = ?" {
				return true
			}
			if method, ok := c.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "tenant" {
				return true
			}
		}
	}
	return false
}

// Every statement on rows of a tenant names the tenant in its WHERE, or its
// function stands in the list above with the reason.
func TestStatementsNameTheTenant(t *testing.T) {
	t.Parallel()
	tables := tenantTables(t)
	used := map[string]bool{}
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, entry := range names {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			for _, text := range statements(f) {
				if !reachesTenants(text, tables) {
					continue
				}
				checked++
				switch {
				case named.MatchString(text), filtersByTenant(f):
				case wide[f.Name.Name] != "":
					used[f.Name.Name] = true
				default:
					t.Errorf("%s: %s does not name the tenant: %s", entry.Name(), f.Name.Name, strings.Join(strings.Fields(text), " "))
				}
			}
		}
	}
	for name := range wide {
		if !used[name] {
			t.Errorf("%s is in the list, and needs not be", name)
		}
	}
	if checked < 40 {
		t.Errorf("only %d statements were looked at", checked)
	}
}

// reachesTenants reports whether a statement reads or writes rows of a tenant; a
// table that is not written out may be one.
func reachesTenants(text string, tables map[string]bool) bool {
	for _, m := range touched.FindAllStringSubmatch(text, -1) {
		if tables[m[1]] || strings.HasPrefix(m[1], "{") {
			return true
		}
	}
	return false
}
