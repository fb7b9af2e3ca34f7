package headgate_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/headgate/headgate"

// imports says which of our packages each of our packages may import. Arrows
// point down; "." is the root package, which embeds openapi.yaml. Change this
// table in the commit that moves the wall, and say there why.
var imports = map[string][]string{
	".": {},

	"internal/problem":    {},
	"internal/strictjson": {"internal/problem"},
	"internal/audit":      {"internal/problem"},
	"enforcement":         {"internal/problem", "internal/strictjson", "internal/cow"}, // a policy reads its own JSON
	"internal/cow":        {},                                                          // maps whose versions share memory: snapshots are made of them

	"plans":   {"enforcement", "internal/problem", "internal/audit", "internal/strictjson"},
	"tenants": {"internal/problem", "internal/audit", "internal/strictjson"},
	// Operator keys have the scopes of tenants' keys; failed sign-ins are counted by our own limits.
	"internal/accounts": {"enforcement", "internal/problem", "internal/audit", "internal/strictjson", "tenants"},

	"internal/exceptions": {"plans", "tenants", "enforcement", "internal/problem", "internal/audit"}, // an override is held against the tenant's plan

	"internal/snapshot":   {"plans", "tenants", "internal/accounts", "internal/exceptions", "enforcement", "internal/problem", "internal/cow"},
	"internal/metrics":    {"enforcement", "internal/problem", "internal/logging"},
	"internal/tracing":    {"enforcement"},
	"internal/simulation": {"enforcement", "internal/problem", "internal/strictjson"},
	"internal/oidc":       {"internal/accounts", "internal/problem"},
	"internal/usage":      {"internal/snapshot", "internal/metrics", "internal/exceptions", "enforcement", "internal/problem"}, // what the snapshot knows, what was counted and what the limiter holds, in one answer

	"internal/preview": {"internal/metrics", "internal/exceptions", "plans", "tenants", "internal/audit", "enforcement", "internal/problem"}, // a plan's draft, held against what was counted of its tenants

	"internal/demo": {"internal/snapshot", "internal/metrics", "internal/exceptions", "plans", "tenants", "internal/audit", "enforcement", "internal/problem"}, // uses the services as people do

	"internal/admission": {},
	"internal/http1":     {},
	"internal/connlimit": {},
	"internal/logging":   {},

	"internal/nodes": {}, // what a node says of itself is found out by cmd/server

	"api": {".", "internal/admission", "internal/usage", "internal/snapshot", "internal/metrics", "internal/exceptions", "plans", "tenants", "internal/accounts", "internal/audit", "internal/simulation", "enforcement", "internal/problem", "internal/strictjson"},
	// The shell of the dashboard, and its page groups, which never import each other.
	"web":         {"enforcement", "internal/accounts", "internal/audit", "internal/exceptions", "internal/metrics", "internal/problem", "plans", "tenants", "web/views"},
	"web/signin":  {"internal/accounts", "internal/problem", "web", "web/views"},
	"web/traffic": {"enforcement", "internal/accounts", "internal/exceptions", "internal/metrics", "internal/problem", "internal/snapshot", "internal/usage", "plans", "tenants", "web", "web/views"},
	"web/plans":   {"enforcement", "internal/accounts", "internal/audit", "internal/nodes", "internal/preview", "internal/problem", "internal/simulation", "plans", "web", "web/views"},
	"web/tenants": {"enforcement", "internal/accounts", "internal/exceptions", "internal/metrics", "internal/problem", "internal/snapshot", "internal/usage", "plans", "tenants", "web", "web/views"},
	"web/admin":   {"internal/accounts", "internal/audit", "internal/nodes", "internal/problem", "internal/snapshot", "tenants", "web", "web/views"},
	"web/views":   {"internal/problem"}, // view models with ready values

	// At the side: known to cmd/server and to tests.
	"internal/store":           {"internal/nodes", "plans", "tenants", "internal/accounts", "internal/audit", "internal/exceptions", "internal/snapshot", "internal/metrics", "enforcement", "internal/problem", "internal/strictjson", "migrations"},
	"internal/store/storetest": {"internal/store", "internal/nodes", "internal/demo", "plans", "tenants", "internal/accounts", "internal/audit", "internal/exceptions", "internal/snapshot", "internal/metrics", "enforcement", "internal/problem"},
	"migrations":               {},
	"enforcement/inprocess":    {"enforcement", "internal/problem"},
	"enforcement/redis":        {"enforcement", "internal/problem"},
	"enforcement/lease":        {"enforcement", "internal/problem"},
	"enforcement/limitertest":  {"enforcement", "internal/problem"},

	// The load generator of headgate bench and of the module bench.
	"internal/load": {},

	"cmd/server": anything,
	"cmd/views":  {"web", "web/views", "internal/problem"},

	// Test harness: nothing of the product, and nobody's import outside tests.
	"internal/servertest":                  {"internal/servertest/process", "internal/testseed"},
	"internal/servertest/process":          {},
	"internal/testseed":                    {},
	"internal/servertest/browser":          {"internal/servertest/process"},
	"internal/servertest/cmd/with-servers": {"internal/servertest/process"},
}

var anything = []string{"*"}

// testsToo is what the tests of every package may import beside that: the real
// implementations, which the suites have proved equal, instead of mocks.
var testsToo = []string{
	"internal/store", "internal/store/storetest", "migrations", "internal/servertest", "internal/servertest/process", "internal/servertest/browser",
	"enforcement/inprocess", "enforcement/redis", "enforcement/limitertest", "enforcement",
	"plans", "tenants", "internal/accounts", "internal/audit", "internal/exceptions", "internal/snapshot", "internal/metrics", "internal/problem", "internal/strictjson",
	"internal/http1",
}

// outerSuites are tests of several packages together, in the package that the
// others import. They assemble what cmd/server assembles.
var outerSuites = map[string][]string{
	"web": {".", "web/signin", "web/traffic", "web/plans", "web/tenants", "web/admin", "internal/usage", "internal/preview", "internal/nodes", "internal/simulation"},
}

// bottom packages stay at the bottom in their tests as well: what they promise
// can be shown without anything above them.
var bottom = []string{"internal/problem", "internal/strictjson", "internal/audit"}

// drivers says who may know a library: one driver, one package. In tests
// "*" lets everybody.
var drivers = []struct {
	path     string // an import path; everything below it counts
	packages []string
	tests    []string // and the tests of these
}{
	{"database/sql", []string{"internal/store"}, []string{"cmd/server", "web"}}, // web: a benchmark writes 90 days of rows straight
	{"github.com/jackc/pgx", []string{"internal/store", "internal/servertest"}, nil},
	{"modernc.org/sqlite", []string{"internal/store"}, nil},
	{"github.com/golang-migrate/migrate", []string{"internal/store"}, nil},
	{"github.com/redis/go-redis", []string{"enforcement/redis"}, anything},
	{"github.com/prometheus", []string{"internal/metrics"}, nil},
	{"go.opentelemetry.io", []string{"internal/tracing"}, nil},
	{"github.com/labstack/echo", []string{"api", "web", "web/signin", "web/traffic", "web/plans", "web/tenants", "web/admin", "cmd/server"}, nil},
	{"github.com/a-h/templ", []string{"web", "web/views"}, nil},
	{"github.com/alecthomas/kong", []string{"cmd/server"}, nil},
	{"github.com/oapi-codegen", []string{"api"}, nil},
	{"github.com/coreos/go-oidc", []string{"internal/oidc"}, nil},
	{"golang.org/x/sys", []string{"internal/load"}, nil},
	{"golang.org/x/oauth2", []string{"internal/oidc"}, nil},
	{"golang.org/x/crypto", []string{"internal/accounts"}, nil},
	{"github.com/chromedp", []string{"internal/servertest/browser"}, []string{"web", "cmd/server"}}, // a real browser
	{"github.com/getkin/kin-openapi", nil, []string{"api", "web"}},                                  // the tests' judge
	{"testing", []string{"internal/testseed", "internal/servertest", "internal/servertest/browser", "internal/store/storetest", "enforcement/limitertest"}, anything},
}

// standardOnly packages import nothing from outside Go's standard library but
// the identifiers that the whole product uses, and the standard library's own
// annex, x/crypto, where drivers lets them.
var standardOnly = []string{"internal/problem", "internal/strictjson", "enforcement", "internal/audit", "plans", "tenants", "internal/accounts", "internal/exceptions", "internal/nodes", "migrations", "internal/admission", "internal/logging", "internal/cow", "internal/servertest/process", "internal/servertest/cmd/with-servers"}

type listed struct {
	ImportPath, Doc                             string
	Imports, TestImports, XTestImports, GoFiles []string
}

// packages is what go list knows of every package of this module. A package
// that does not compile is listed all the same; the compiler reports that.
func packages(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Doc,Imports,TestImports,XTestImports,GoFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := map[string]listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		found[short(p.ImportPath)] = p
	}
}

// short is our name of an import path: "plans", "." for the root; "" when it is
// not ours.
func short(importPath string) string {
	if importPath == module {
		return "."
	}
	if rest, ours := strings.CutPrefix(importPath, module+"/"); ours {
		return rest
	}
	return ""
}

func allows(list []string, name string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, name)
}

func TestPackagesImportOnlyWhatStandsBelowThem(t *testing.T) {
	t.Parallel()
	for name, p := range packages(t) {
		allowed, known := imports[name]
		if !known {
			t.Errorf("package %s is not in the table: say what it may import, or put the code where its concept lives", name)
			continue
		}
		for _, path := range p.Imports {
			if to := short(path); to != "" && !allows(allowed, to) {
				t.Errorf("%s imports %s, which is not below it", name, to)
			}
		}
		inTests := slices.Concat(allowed, []string{name, "internal/testseed"})
		if !slices.Contains(bottom, name) {
			inTests = slices.Concat(inTests, testsToo)
		}
		inTests = slices.Concat(inTests, outerSuites[name])
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if to := short(path); to != "" && !allows(inTests, to) {
				t.Errorf("a test of %s imports %s", name, to)
			}
		}
	}
}

func TestOneDriverOnePackage(t *testing.T) {
	t.Parallel()
	for name, p := range packages(t) {
		for _, d := range drivers {
			below := func(path string) bool { return path == d.path || strings.HasPrefix(path, d.path+"/") }
			if !allows(d.packages, name) && slices.ContainsFunc(p.Imports, below) {
				t.Errorf("%s imports %s, which only %v may", name, d.path, d.packages)
			}
			if !allows(d.packages, name) && !allows(d.tests, name) && slices.ContainsFunc(slices.Concat(p.TestImports, p.XTestImports), below) {
				t.Errorf("a test of %s imports %s, which only %v may", name, d.path, slices.Concat(d.packages, d.tests))
			}
		}
		if !slices.Contains(standardOnly, name) {
			continue
		}
		for _, path := range p.Imports {
			if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") && short(path) == "" && path != "github.com/google/uuid" && !strings.HasPrefix(path, "golang.org/x/crypto/") {
				t.Errorf("%s imports %s: it keeps to the standard library", name, path)
			}
		}
	}
}

// TestTablesNameWhatExists fails for a row of a table that names no package, and for
// a driver that none of its packages imports.
func TestTablesNameWhatExists(t *testing.T) {
	t.Parallel()
	found := packages(t)
	exists := func(table string, names ...string) {
		for _, name := range names {
			if _, ok := found[name]; !ok && name != "*" {
				t.Errorf("%s names %s, which is not a package: remove it", table, name)
			}
		}
	}
	for name, allowed := range imports {
		exists("imports", append([]string{name}, allowed...)...)
	}
	exists("testsToo", testsToo...)
	exists("bottom", bottom...)
	exists("standardOnly", standardOnly...)
	for _, d := range drivers {
		exists("drivers", slices.Concat(d.packages, d.tests)...)
		uses := func(imports []string) bool {
			return slices.ContainsFunc(imports, func(path string) bool { return path == d.path || strings.HasPrefix(path, d.path+"/") })
		}
		for _, name := range d.packages {
			if !uses(found[name].Imports) {
				t.Errorf("drivers lets %s import %s, which it does not", name, d.path)
			}
		}
		for _, name := range d.tests {
			if name != "*" && !uses(slices.Concat(found[name].TestImports, found[name].XTestImports)) {
				t.Errorf("drivers lets tests of %s import %s, which they do not", name, d.path)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for name, p := range packages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("package %s has no doc comment", name)
		}
	}
}

// mentioned finds paths in backticks and in links: something with a slash, or
// a file at the root. What is no path of ours looks different: routes begin
// with a slash, patterns have signs that no file of ours has.
var (
	backticked = regexp.MustCompile("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*/?)`")
	linked     = regexp.MustCompile(`\]\(([A-Za-z0-9_./-]+)(?:#[^)]*)?\)`)
	inTree     = regexp.MustCompile(`^( *)((?:[A-Za-z0-9_.-]+/)+(?:[A-Za-z0-9_-]+\.[a-z]+)?|[a-z_]+\.(?:go|ya?ml|md|mod|sql|lua|templ))(?:\s{2,}|\s*$)`)
	ourFile    = regexp.MustCompile(`^(?:[A-Z][A-Za-z]*file|[A-Za-z0-9_.-]+\.(?:go|md|ya?ml|templ|sql|lua|css|js|mod|sum))$`)
)

// notPaths look like paths in the documents and are something else.
var notPaths = []string{
	"bin/headgate", "data/headgate.db", "data/", "./data", "bin/", // made by make run
	"application/json", "application/problem+json", "text/plain", "text/html",
}

// documentPaths returns every path that a document claims to exist.
func documentPaths(text string) []string {
	var found []string
	for _, m := range backticked.FindAllStringSubmatch(text, -1) {
		candidate := m[1]
		if !strings.Contains(candidate, "/") && !ourFile.MatchString(candidate) {
			continue // a word
		}
		first, _, deep := strings.Cut(candidate, "/")
		if deep && strings.Contains(first, ".") && !strings.HasPrefix(first, ".") {
			continue // an import path or an image's name
		}
		found = append(found, candidate)
	}
	for _, m := range linked.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return slices.Concat(found, treePaths(text))
}

// treePaths reads code blocks: each line that begins with a folder or a file.
// One that stands indented below a folder is in that folder; a line that is no
// path, such as a journey's title, ends the folders above it.
func treePaths(text string) []string {
	type folder struct {
		indent int
		path   string
	}
	var found []string
	for i, block := range strings.Split(text, "```") {
		if i%2 == 0 {
			continue
		}
		var above []folder
		for line := range strings.Lines(block) {
			m := inTree.FindStringSubmatch(line)
			if m == nil {
				if !strings.HasPrefix(line, " ") {
					above = nil
				}
				continue
			}
			indent, name := len(m[1]), m[2]
			for len(above) > 0 && above[len(above)-1].indent >= indent {
				above = above[:len(above)-1]
			}
			here := name
			if len(above) > 0 {
				here = path.Join(above[len(above)-1].path, name)
			}
			here = strings.TrimSuffix(here, "/")
			found = append(found, here)
			if strings.HasSuffix(name, "/") {
				above = append(above, folder{indent, here})
			}
		}
	}
	return found
}

func TestDocumentsNameOnlyPathsThatExist(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(document)
		if errors.Is(err, fs.ErrNotExist) && document != "README.md" && document != "ARCHITECTURE.md" {
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for _, p := range documentPaths(string(text)) {
			if slices.Contains(notPaths, p) {
				continue
			}
			if _, err := os.Stat(filepath.FromSlash(p)); err != nil {
				t.Errorf("%s names %s, which does not exist", document, p)
			}
		}
	}
}

func TestDocumentPathsAreFound(t *testing.T) {
	t.Parallel()
	text := "See `api/check.go`, `go.mod`, `Makefile` and [why](docs/adr/0001-x.md#top); call `/v1/check` with `quota`,\n" +
		"import `github.com/x/y` or `docs.rs/z`.\n" +
		"```\ncmd/server/   the program\nweb/          pages\n  views/      templ\n  static/\n  page.go     one\nplans/\nopenapi.yaml  x\nnot a/b path\n```\n" +
		"```\nPOST /v1/check\n  api/a.go   in\n  metrics/   count\n    store/   x\n  api/b.go   out\nan edit\n  web/c.go   in\n```\n"
	got := documentPaths(text)
	want := []string{
		"api/check.go", "go.mod", "Makefile", "docs/adr/0001-x.md",
		"cmd/server", "web", "web/views", "web/static", "web/page.go", "plans", "openapi.yaml",
		"api/a.go", "metrics", "metrics/store", "api/b.go", "web/c.go",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
