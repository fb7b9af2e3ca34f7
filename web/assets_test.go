package web_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/web"
)

// vendored are files of other projects, unchanged from their packages.
var vendored = map[string]string{
	"static/vendor/htmx-2.0.11.min.js":        "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
	"static/vendor/htmx-ext-sse-2.2.4.min.js": "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",
	"static/vendor/uplot-1.6.32.iife.min.js":  "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
	"static/css/05-uplot.css":                 "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	"static/fonts/inter-latin-5.3.0.woff2":    "3100e775e8616cd2611beecfa23a4263d7037586789b43f035236a2e6fbd4c62",
}

// Files of other projects are not edited. A change is an update to another version.
func TestVendoredFiles(t *testing.T) {
	t.Parallel()
	for name, want := range vendored {
		body, err := web.Static.ReadFile(name)
		must(t, err)
		if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the SHA-256 %x", name, sum)
		}
	}
	entries, err := fs.ReadDir(web.Static, "static/vendor")
	must(t, err)
	for _, e := range entries {
		if _, known := vendored["static/vendor/"+e.Name()]; !known && e.Name() != "LICENSES.txt" {
			t.Errorf("nobody says where static/vendor/%s comes from", e.Name())
		}
	}
}

// The URL of each file contains the hash of its content. Files are compressed for clients that
// accept it. The style sheet names the font by its URL.
func TestAssets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, err := web.NewAssets(web.Static)
	must(t, err)
	for name, url := range a.URLs() {
		plain := w.get(url, "")
		packed := w.send(http.MethodGet, url, "", nil, func(r *http.Request) { r.Header.Set("Accept-Encoding", "br, gzip") })
		if plain.Code != 200 || packed.Code != 200 || plain.Header().Get("Content-Encoding") != "" {
			t.Fatalf("%s: %d and %d", name, plain.Code, packed.Code)
		}
		body := packed.body
		if packed.Header().Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(strings.NewReader(body))
			must(t, err)
			unpacked, err := io.ReadAll(z)
			must(t, err)
			body = string(unpacked)
			if packed.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s: Vary is %q", name, packed.Header().Values("Vary"))
			}
		} else if strings.HasSuffix(name, ".js") || strings.HasSuffix(name, ".css") {
			t.Errorf("%s is not packed", name)
		}
		if body != plain.body {
			t.Errorf("%s differs when it is packed", name)
		}
		if !strings.Contains(plain.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: Cache-Control is %q", name, plain.Header().Get("Cache-Control"))
		}
	}
	css := w.get(a.URLs()["headgate.css"], "").body
	for _, link := range regexp.MustCompile(`url\("([^"]*)"\)`).FindAllStringSubmatch(css, -1) {
		if w.get(link[1], "").Code != 200 {
			t.Errorf("the style sheet names %s, which is not there", link[1])
		}
	}
	if w.get("/static/headgate.css", "").Code != 404 {
		t.Error("a file is there without the hash of its content")
	}
}

// Pages are compressed for clients that accept it, also error pages.
func TestPagesArePacked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, status := range map[string]int{"/people": 200, "/none": 404, "/docs": 200} {
		plain := w.get(path, "owner")
		packed := w.send(http.MethodGet, path, "owner", nil, func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
		if packed.Code != status || packed.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %d, packed as %q", path, packed.Code, packed.Header().Get("Content-Encoding"))
		}
		z, err := gzip.NewReader(strings.NewReader(packed.body))
		must(t, err)
		body, err := io.ReadAll(z)
		must(t, err)
		if len(body) != len(plain.body) || len(packed.body) > len(body)*2/3 {
			t.Errorf("%s: %d bytes, packed %d, unpacked %d", path, len(plain.body), len(packed.body), len(body))
		}
	}
}

// unstyled are classes without a style, each with its purpose.
var unstyled = map[string]string{"all-left": "tests find the element by it"}

// Each class of a page has a style, or a script uses it. If a class is renamed only in the
// templates, its page loses its layout.
func TestClassesHaveStyles(t *testing.T) {
	t.Parallel()
	var known strings.Builder
	for _, pattern := range []string{"static/css/*.css", "static/js/*.js"} {
		names, err := fs.Glob(web.Static, pattern)
		must(t, err)
		for _, name := range names {
			body, err := web.Static.ReadFile(name)
			must(t, err)
			known.Write(body)
		}
	}
	templates, err := filepath.Glob("views/*.templ")
	must(t, err)
	class, found := regexp.MustCompile(`\sclass="([^"{]*)"`), map[string]bool{}
	for _, name := range templates {
		body, err := os.ReadFile(name)
		must(t, err)
		for _, list := range class.FindAllStringSubmatch(string(body), -1) {
			for _, c := range strings.Fields(list[1]) {
				found[c] = true
				if unstyled[c] == "" && !regexp.MustCompile(`\b`+regexp.QuoteMeta(c)+`\b`).MatchString(known.String()) {
					t.Errorf("%s: the class %s has no style", name, c)
				}
			}
		}
	}
	if len(found) < 100 {
		t.Errorf("%d classes: the templates were not read", len(found))
	}
}

// A class that two page groups use must be in a shared file. Otherwise the style of one group
// would change the pages of the other.
func TestClassesOfPageGroupsAreTheirOwn(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(web.Static, "static/css/*.css")
	must(t, err)
	shared, owners := map[string]bool{}, map[string][]string{}
	comment, rule, class := regexp.MustCompile(`(?s)/\*.*?\*/`), regexp.MustCompile(`[^{}]+\{`), regexp.MustCompile(`\.([A-Za-z][\w-]*)`)
	for _, name := range names {
		body, err := web.Static.ReadFile(name)
		must(t, err)
		for _, selector := range rule.FindAllString(comment.ReplaceAllString(string(body), ""), -1) {
			if strings.HasPrefix(strings.TrimSpace(selector), "@") {
				continue
			}
			for _, found := range class.FindAllStringSubmatch(selector, -1) {
				switch file := path.Base(name); {
				case file < "40":
					shared[found[1]] = true
				case !slices.Contains(owners[found[1]], file):
					owners[found[1]] = append(owners[found[1]], file)
				}
			}
		}
	}
	if len(owners) < 100 || len(shared) < 100 {
		t.Fatalf("%d classes of page groups and %d of all: the style sheets were not read", len(owners), len(shared))
	}
	for name, files := range owners {
		if len(files) > 1 && !shared[name] {
			t.Errorf("the class %s is of %q: give one another name, or put it into the parts", name, files)
		}
	}
}
