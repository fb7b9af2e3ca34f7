package headgate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

// imports lists, for each package of this module, the packages of this module that it
// may import. "." is the root package, which embeds openapi.yaml. Change this table in
// the commit that changes an import, and give the reason in the commit message.
var imports = map[string][]string{
	".": {},

	"internal/problem":    {},
	"internal/strictjson": {"internal/problem"},
	"internal/audit":      {},
	"enforcement":         {"internal/problem", "internal/strictjson", "internal/cow"}, // policies parse their JSON
	"internal/cow":        {},                                                          // maps whose versions share memory; snapshots use them

	"plans":   {"enforcement", "internal/problem", "internal/audit", "internal/strictjson"},
	"tenants": {"internal/problem", "internal/audit"},
	// Operator keys have the scopes of tenants' keys; the enforcement package limits failed sign-ins.
	"internal/accounts":     {"internal/retry", "internal/secondfactor", "enforcement", "internal/problem", "internal/audit", "tenants"},
	"internal/secondfactor": {}, // codes and passkeys

	"internal/exceptions": {"internal/retry", "plans", "tenants", "enforcement", "internal/problem", "internal/audit"}, // an override is validated with the tenant's plan

	"internal/snapshot":   {"internal/retry", "plans", "tenants", "internal/exceptions", "enforcement", "internal/problem", "internal/cow"},
	"internal/metrics":    {"internal/retry", "enforcement", "internal/problem", "internal/logging"},
	"internal/tracing":    {"enforcement"},
	"internal/simulation": {"enforcement", "internal/problem", "internal/strictjson"},
	"internal/oidc":       {"internal/accounts", "internal/problem"},
	"internal/usage":      {"internal/snapshot", "internal/metrics", "internal/exceptions", "enforcement", "internal/problem"}, // one answer from the snapshot, the recorded counts, and the limiter

	"internal/configuration": {"internal/exceptions", "internal/preview", "plans", "tenants", "enforcement", "internal/problem"}, // one document; calls the services

	"internal/preview": {"internal/metrics", "internal/exceptions", "plans", "tenants", "internal/audit", "enforcement", "internal/problem"}, // a plan's draft, compared with the recorded counts of its tenants

	"internal/demo": {"internal/retry", "internal/snapshot", "internal/metrics", "internal/exceptions", "plans", "tenants", "internal/audit", "enforcement", "internal/problem"}, // calls the services, like a person

	"internal/export": {"internal/audit", "internal/metrics", "enforcement"}, // CSV files of the API and the dashboard

	"internal/admission": {},
	"internal/http1":     {},
	"internal/http2":     {},
	"internal/connlimit": {},
	"internal/logging":   {},
	"internal/retry":     {},

	"internal/mail":         {},                                     // SMTP
	"internal/sharing":      {"internal/audit", "internal/problem"}, // links that open a page without a session
	"internal/savedfilters": {"internal/audit", "internal/problem"},
	"internal/alerts":       {"internal/mail", "internal/audit", "internal/metrics", "internal/nodes", "internal/problem", "internal/retry", "internal/usage"},
	"internal/nodes":        {"internal/latency"}, // cmd/server collects the report of this node

	"api":       {"internal/sharing", "internal/alerts", "internal/export", "internal/configuration", "internal/preview", ".", "internal/admission", "internal/usage", "internal/snapshot", "internal/metrics", "internal/nodes", "internal/exceptions", "plans", "tenants", "internal/accounts", "internal/audit", "internal/simulation", "enforcement", "internal/problem", "internal/strictjson", "internal/logging"},
	"api/envoy": {"api", "enforcement", "internal/connlimit", "internal/http2", "internal/problem"},
	"api/resp":  {"api", "enforcement", "internal/connlimit", "internal/problem"},
	// The shell of the dashboard, and its page groups. A page group imports no other one.
	"web":            {"enforcement", "internal/accounts", "internal/admission", "internal/audit", "internal/exceptions", "internal/metrics", "internal/problem", "plans", "tenants", "web/views"},
	"web/signin":     {"internal/accounts", "internal/problem", "internal/secondfactor", "tenants", "web", "web/views"},
	"web/share":      {"internal/accounts", "internal/problem", "internal/sharing", "tenants", "web", "web/views"}, // what traffic, decisions and admin share about shared links
	"web/saved":      {"internal/accounts", "internal/problem", "internal/savedfilters", "web", "web/views"},       // the saved filters of the pages of other groups
	"web/docs":       {"internal/accounts", "internal/problem", "web", "web/views"},
	"web/requests":   {"enforcement", "internal/metrics", "internal/problem", "internal/snapshot", "tenants", "web", "web/views"}, // what traffic and decisions share
	"web/traffic":    {"internal/savedfilters", "web/saved", "internal/sharing", "web/share", "enforcement", "internal/accounts", "internal/alerts", "internal/audit", "internal/exceptions", "internal/export", "internal/metrics", "internal/nodes", "internal/problem", "internal/snapshot", "internal/usage", "plans", "tenants", "web", "web/requests", "web/views"},
	"web/decisions":  {"internal/savedfilters", "web/saved", "internal/sharing", "web/share", "enforcement", "internal/accounts", "internal/metrics", "internal/problem", "internal/snapshot", "plans", "tenants", "web", "web/requests", "web/views"},
	"web/playground": {"enforcement", "internal/accounts", "internal/problem", "internal/simulation", "plans", "web", "web/views"},
	"web/palette":    {"internal/savedfilters", "internal/sharing", "web/share", "internal/accounts", "internal/snapshot", "internal/usage", "enforcement", "plans", "tenants", "web", "web/views"},
	"web/plans":      {"enforcement", "internal/accounts", "internal/audit", "internal/nodes", "internal/preview", "internal/problem", "plans", "web", "web/views"},
	"web/tenants":    {"internal/savedfilters", "web/saved", "enforcement", "internal/accounts", "internal/exceptions", "internal/metrics", "internal/problem", "internal/snapshot", "internal/usage", "plans", "tenants", "web", "web/views"},
	"web/admin":      {"internal/savedfilters", "web/saved", "internal/sharing", "web/share", "internal/accounts", "internal/audit", "internal/export", "internal/metrics", "internal/nodes", "internal/problem", "internal/snapshot", "tenants", "web", "web/views"},
	"web/alerts":     {"enforcement", "internal/accounts", "internal/alerts", "internal/problem", "web", "web/views"},
	"web/views":      {"internal/problem"}, // view models with ready values

	// Implementations. Only cmd/server and tests import them.
	"internal/store":           {"internal/savedfilters", "internal/sharing", "internal/alerts", "internal/retry", "internal/nodes", "plans", "tenants", "internal/accounts", "internal/audit", "internal/exceptions", "internal/snapshot", "internal/metrics", "enforcement", "internal/problem", "internal/strictjson", "migrations"},
	"internal/store/storetest": {"internal/savedfilters", "internal/sharing", "internal/alerts", "enforcement/journal", "internal/configuration", "internal/nodes", "internal/demo", "plans", "tenants", "internal/accounts", "internal/audit", "internal/exceptions", "internal/snapshot", "internal/metrics", "enforcement", "internal/problem"},
	"migrations":               {},
	"enforcement/inprocess":    {"enforcement"},
	"enforcement/redis":        {"enforcement", "internal/retry"},
	"enforcement/journal":      {"enforcement", "internal/retry"}, // stores durable states through its own Store contract
	"enforcement/lease":        {"enforcement"},
	"enforcement/limitertest":  {"enforcement"},

	// The load generator of headgate bench and of the module cmd/bench-peers.
	"internal/load":    {"internal/latency"},
	"internal/latency": {},

	// Commands that call the REST API. They know the contract only.
	"internal/cli":     {"internal/migrate", "internal/retry"},
	"internal/migrate": {}, // reads the limits of other products

	"cmd/server": anything,
	"cmd/views":  {"web/views"},

	// The test harness. Only tests import it.
	"internal/servertest":                  {"internal/servertest/process", "internal/testseed"},
	"internal/servertest/process":          {},
	"internal/testseed":                    {},
	"internal/servertest/smtp":             {},
	"internal/servertest/browser":          {"internal/servertest/process"},
	"internal/servertest/cmd/with-servers": {"internal/servertest/process"},
}

var anything = []string{"*"}

// testsToo lists what the tests of every package may also import: the real
// implementations. Tests use them instead of mocks.
var testsToo = []string{
	"internal/store", "internal/store/storetest", "migrations", "internal/servertest", "internal/servertest/process", "internal/servertest/browser", "internal/servertest/smtp",
	"enforcement/inprocess", "enforcement/redis", "enforcement/limitertest", "enforcement",
	"plans", "tenants", "internal/accounts", "internal/audit", "internal/exceptions", "internal/snapshot", "internal/metrics", "internal/problem", "internal/strictjson",
	"internal/http1", "internal/load",
}

// outerSuites lists packages whose tests cover several packages together, and what
// these tests may also import. They assemble the same parts as cmd/server.
var outerSuites = map[string][]string{
	"web": {".", "web/signin", "web/docs", "web/traffic", "web/decisions", "web/playground", "web/palette", "web/plans", "web/tenants", "web/admin", "web/alerts", "web/saved", "internal/alerts", "internal/sharing", "internal/savedfilters", "internal/usage", "internal/preview", "internal/nodes", "internal/simulation"},
}

// bottom lists packages whose tests must not import the packages of testsToo.
var bottom = []string{"internal/problem", "internal/strictjson", "internal/audit"}

// drivers lists the packages that may import a library. "*" in tests allows the tests
// of all packages.
var drivers = []struct {
	path     string // an import path; the packages below it are included
	packages []string
	tests    []string // packages whose tests may import it, too
}{
	{"database/sql", []string{"internal/store"}, []string{"cmd/server", "web"}}, // a benchmark of web inserts 90 days of rows
	{"github.com/jackc/pgx", []string{"internal/store", "internal/servertest"}, nil},
	{"modernc.org/sqlite", []string{"internal/store"}, nil},
	{"github.com/golang-migrate/migrate", []string{"internal/store"}, nil},
	{"github.com/redis/go-redis", []string{"enforcement/redis"}, anything},
	{"github.com/prometheus", []string{"internal/metrics"}, nil},
	{"go.opentelemetry.io", []string{"internal/tracing"}, nil},
	{"google.golang.org/grpc", []string{"api/envoy", "internal/http2"}, []string{"cmd/server"}},
	{"github.com/envoyproxy/go-control-plane", []string{"api/envoy"}, []string{"cmd/server"}},
	{"github.com/labstack/echo", []string{"api", "web", "web/signin", "web/docs", "web/share", "web/saved", "web/traffic", "web/decisions", "web/playground", "web/palette", "web/plans", "web/tenants", "web/admin", "web/alerts", "cmd/server"}, nil},
	{"github.com/a-h/templ", []string{"web", "web/views"}, nil},
	{"github.com/yuin/goldmark", []string{"web/docs"}, nil},
	{"github.com/alecthomas/kong", []string{"cmd/server"}, nil},
	{"go.yaml.in/yaml", []string{"api", "cmd/server", "internal/cli", "internal/migrate", "web/docs"}, nil},
	{"github.com/oapi-codegen", []string{"api"}, nil},
	{"github.com/wneessen/go-mail", []string{"internal/mail"}, nil},
	{"github.com/emersion", []string{"internal/servertest/smtp"}, nil}, // a mail server for tests
	{"github.com/coreos/go-oidc", []string{"internal/oidc"}, nil},
	{"github.com/pquerna/otp", []string{"internal/secondfactor"}, anything}, // tests compute codes
	{"github.com/go-webauthn/webauthn", []string{"internal/secondfactor"}, nil},
	{"github.com/go-jose/go-jose", []string{"internal/oidc"}, []string{"cmd/server"}}, // a test signs JWTs
	{"golang.org/x/sys", []string{"internal/load"}, nil},
	{"golang.org/x/oauth2", []string{"internal/oidc"}, nil},
	{"golang.org/x/crypto", []string{"internal/accounts"}, nil},
	{"github.com/chromedp", []string{"internal/servertest/browser"}, []string{"web", "cmd/server"}}, // a real browser
	{"github.com/getkin/kin-openapi", nil, []string{"api", "web"}},                                  // tests check requests and responses against openapi.yaml
	{"testing", []string{"internal/testseed", "internal/servertest", "internal/servertest/browser", "internal/servertest/smtp", "internal/store/storetest", "enforcement/limitertest"}, anything},
}

// standardOnly lists packages that import only the standard library, google/uuid, and
// x/crypto where drivers allows it.
var standardOnly = []string{"internal/problem", "internal/strictjson", "enforcement", "internal/audit", "plans", "tenants", "internal/accounts", "internal/exceptions", "internal/nodes", "migrations", "internal/admission", "internal/logging", "internal/retry", "internal/cow", "internal/servertest/process", "internal/servertest/cmd/with-servers"}

type listed struct {
	ImportPath, Doc                             string
	Imports, TestImports, XTestImports, GoFiles []string
}

// packages returns the result of go list for every package of this module. It includes
// packages that do not compile.
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

// short returns the path of a package in this module, such as "plans", or "." for the
// root. It returns "" for other modules.
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

func TestImportsFollowTheTable(t *testing.T) {
	t.Parallel()
	for name, p := range packages(t) {
		allowed, known := imports[name]
		if !known {
			t.Errorf("package %s is not in the table imports: add it, or move the code to an existing package", name)
			continue
		}
		for _, path := range p.Imports {
			if to := short(path); to != "" && !allows(allowed, to) {
				t.Errorf("%s imports %s, which the table imports does not allow", name, to)
			}
		}
		inTests := slices.Concat(allowed, []string{name, "internal/testseed"})
		if !slices.Contains(bottom, name) {
			inTests = slices.Concat(inTests, testsToo)
		}
		inTests = slices.Concat(inTests, outerSuites[name])
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if to := short(path); to != "" && !allows(inTests, to) {
				t.Errorf("a test of %s imports %s, which the tables do not allow", name, to)
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
				t.Errorf("%s imports %s, and is in standardOnly", name, path)
			}
		}
	}
}

// TestTablesHaveNoDeadRows fails for a row that names no package, for a permission that
// no import uses, and for a driver that its packages do not import.
func TestTablesHaveNoDeadRows(t *testing.T) {
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
		p := found[name]
		for _, to := range allowed {
			uses := func(path string) bool { return short(path) == to }
			if to != "*" && !slices.ContainsFunc(slices.Concat(p.Imports, p.TestImports, p.XTestImports), uses) {
				t.Errorf("imports allows %s to import %s, which it does not: remove it", name, to)
			}
		}
	}
	for name, allowed := range outerSuites {
		exists("outerSuites", append([]string{name}, allowed...)...)
		for _, to := range allowed {
			if !slices.ContainsFunc(found[name].XTestImports, func(path string) bool { return short(path) == to }) {
				t.Errorf("outerSuites allows tests of %s to import %s, which they do not: remove it", name, to)
			}
		}
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
				t.Errorf("drivers allows %s to import %s, which it does not: remove it", name, d.path)
			}
		}
		for _, name := range d.tests {
			if name != "*" && !uses(slices.Concat(found[name].TestImports, found[name].XTestImports)) {
				t.Errorf("drivers allows tests of %s to import %s, which they do not: remove it", name, d.path)
			}
		}
	}
}

func TestEveryPackageHasADocComment(t *testing.T) {
	t.Parallel()
	for name, p := range packages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("package %s has no doc comment", name)
		}
	}
}

// maxWebFunctions is the maximum number of functions of a package of the dashboard, so that
// a reader can know all of it.
const maxWebFunctions = 150

func TestPackagesOfTheDashboardAreSmall(t *testing.T) {
	t.Parallel()
	for name, p := range packages(t) {
		if name != "web" && !strings.HasPrefix(name, "web/") {
			continue
		}
		functions := 0
		for _, file := range p.GoFiles {
			if strings.HasSuffix(file, "_templ.go") {
				continue // generated
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(name, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				if _, is := d.(*ast.FuncDecl); is {
					functions++
				}
			}
		}
		if functions > maxWebFunctions {
			t.Errorf("package %s has %d functions, at most %d are allowed: split it by content", name, functions, maxWebFunctions)
		}
	}
}

// These patterns find paths in documents: in backticks, in links, and in trees. A path
// has a slash, or is a file in the root. Routes do not match, because they begin with a
// slash.
var (
	backticked = regexp.MustCompile("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*/?)`")
	linked     = regexp.MustCompile(`\]\(([A-Za-z0-9_./-]+)(?:#[^)]*)?\)`)
	inTree     = regexp.MustCompile(`^( *)((?:[A-Za-z0-9_.-]+/)+(?:[A-Za-z0-9_-]+\.[a-z]+)?|[a-z_]+\.(?:go|ya?ml|md|mod|sql|lua|templ))(?:\s{2,}|\s*$)`)
	ourFile    = regexp.MustCompile(`^(?:[A-Z][A-Za-z]*file|[A-Za-z0-9_.-]+\.(?:go|md|ya?ml|templ|sql|lua|css|js|mod|sum))$`)
)

// notPaths lists texts in documents that look like paths and are not.
var notPaths = []string{
	"bin/headgate", "data/headgate.db", "data/", "./data", "bin/", // made by make run
	"application/json", "application/problem+json", "text/plain", "text/html",
}

// documentPaths returns every path in a document.
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

// treePaths returns the paths in code blocks: of each line that begins with a folder
// or a file. An indented line below a folder is in that folder. Any other line that is
// not indented ends the folders above it.
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

// The first sentence of "What is tested" in docs/dashboard.md has the counts of its rows.
func TestDashboardExpectationsAreCounted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/dashboard.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## What is tested")
	counts := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| [A-Z][^|]* \| \**(met|partly)\** \|`).FindAllStringSubmatch(section, -1) {
		counts[row[1]]++
	}
	want := fmt.Sprintf("%d expectations that operators have of such a dashboard: %d are met, %d are partly met.",
		counts["met"]+counts["partly"], counts["met"], counts["partly"])
	if !strings.Contains(section, want) || len(counts) != 2 {
		t.Errorf("the rows are %v, so the page must contain: %s", counts, want)
	}
	for row := range strings.Lines(section) {
		if strings.Contains(row, "**partly**") && !strings.Contains(row, "Missing: ") {
			t.Errorf("the row does not say what is missing: %s", row)
		}
	}
}

// docs/faults.md and docs/dashboard.md name tests that exist.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := os.ReadFile(path)
		code.Write(file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, least := range map[string]int{"docs/faults.md": 100, "docs/dashboard.md": 40} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		names := testNames.FindAllString(string(text), -1)
		if len(names) < least {
			t.Errorf("%s: %d names of tests, want those of all rows", page, len(names))
		}
		for _, name := range names {
			test, goal, scenario := strings.Cut(name, "/")
			if !strings.Contains(code.String(), "func "+test+"(") {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
			if scenario && !strings.Contains(code.String(), `goal: "`+goal) {
				t.Errorf("%s names the scenario %s, which does not exist", page, goal)
			}
		}
	}
}

// docs/dependencies.md has each direct dependency once, with its reason, and no other.
func TestDependenciesHaveReasons(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1)
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\S+)` \\| \\S[^|]* \\| \\S.{4,} \\|$").FindAllStringSubmatch(string(page), -1) {
		reasons[row[1]]++
	}
	if len(direct) < 20 {
		t.Errorf("%d direct dependencies in go.mod", len(direct))
	}
	for _, d := range direct {
		if reasons[d[1]] != 1 {
			t.Errorf("docs/dependencies.md has %d rows for %s, want 1", reasons[d[1]], d[1])
		}
		delete(reasons, d[1])
	}
	for name := range reasons {
		t.Errorf("docs/dependencies.md has %s, which is no direct dependency", name)
	}
	if strings.Contains(string(mod), "\nreplace ") {
		t.Error("go.mod replaces a module")
	}
}

// secrets are the forms of secrets that providers and Headgate issue.
var secrets = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\r\n]+[A-Za-z0-9+/=]{20}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|` +
	`\bgithub_pat_[A-Za-z0-9_]{50,}|\bglpat-[A-Za-z0-9_-]{20}|\bxox[baprs]-[0-9A-Za-z-]{10,}|\bAIza[0-9A-Za-z_-]{35}|\b[rs]k_live_[0-9A-Za-z]{16,}|` +
	`\bnpm_[A-Za-z0-9]{36}\b|\bhg_(?:op|tn)_[0-9A-Za-z]{49}\b|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}`)

// madeUp are examples in the form of a key of Headgate.
var madeUp = regexp.MustCompile(`^hg_(?:op|tn)_0{49}$`)

func secretsIn(text string) []string {
	return slices.DeleteFunc(secrets.FindAllString(text, -1), madeUp.MatchString)
}

// No version of a file in the history has a secret.
func TestNoSecretsInTheHistory(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{
		"hg_op_" + strings.Repeat("a", 49), "AKIA" + strings.Repeat("A", 16), "ghp_" + strings.Repeat("a", 36),
		"-----BEGIN PRIVATE" + " KEY-----\n" + strings.Repeat("A", 64),
	} {
		if len(secretsIn("x = \""+secret+"\"\n")) != 1 {
			t.Errorf("%.20s… is not found", secret)
		}
	}
	history := exec.CommandContext(t.Context(), "git", "log", "-p", "--no-color", "--no-ext-diff", "--format=commit %H%n%B", "HEAD")
	text, err := history.Output()
	if err != nil {
		t.Skipf("the sources are no checkout of git: %v", err)
	}
	added := strings.ReplaceAll(string(text), "\n+", "\n") // a key of several lines
	for _, secret := range secretsIn(added) {
		t.Errorf("the history has what looks like a secret: %.14s…", secret)
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

// unsafeFile is the file that may make pointers of package unsafe; internal/metrics may
// use its Sizeof. rawHTML are the files that may use templ.Raw: docs/adr/0030-where-unsafe-and-raw-html-stand.md says why.
var (
	unsafeFile = "internal/http1/socket_linux.go"
	unsafeUse  = regexp.MustCompile(`\bunsafe\.[A-Z]\w*`)
	rawHTML    = []string{"web/views/layout.templ", "web/views/layout_templ.go", "web/views/guides.templ", "web/views/guides_templ.go"}
)

func TestUnsafeAndRawHTML(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".templ"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, use := range unsafeUse.FindAllString(string(text), -1) {
			if path != unsafeFile && (use != "unsafe.Sizeof" || !strings.HasPrefix(path, "internal/metrics/")) {
				t.Errorf("%s uses %s", path, use)
			}
		}
		if strings.Contains(string(text), "templ.Raw(") && !slices.Contains(rawHTML, path) {
			t.Errorf("%s uses templ.Raw", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
