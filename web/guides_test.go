package web_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every guide has a page. Every link in it leads to an existing page and section.
func TestGuides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := map[string]map[string]bool{} // by path
	read := func(path string) (links []string) {
		r := w.get(path, "")
		if r.Code != http.StatusOK {
			t.Fatalf("%s: %d", path, r.Code)
		}
		ids[path] = map[string]bool{}
		for n := range r.tree(t).Descendants() {
			for _, a := range n.Attr {
				switch {
				case a.Key == "id":
					ids[path][a.Val] = true
				case a.Key == "href" && n.Data == "a":
					links = append(links, a.Val)
				case a.Key == "src" && n.Data == "img" && !strings.HasPrefix(a.Val, "/static/"):
					t.Errorf("%s has an image that the server does not have: %s", path, a.Val)
				}
			}
		}
		return links
	}
	files, err := filepath.Glob("../docs/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d guides, %v", len(files), err)
	}
	listed := strings.Join(read("/docs/guides"), " ")
	type link struct{ from, path, fragment string }
	var all []link
	for _, file := range files {
		path := "/docs/guides/" + strings.TrimSuffix(filepath.Base(file), ".md")
		if !strings.Contains(listed, path) {
			t.Errorf("%s is not in the list", path)
		}
		for _, target := range read(path) {
			to, fragment, _ := strings.Cut(target, "#")
			if to == "" {
				to = path
			}
			all = append(all, link{path, to, fragment})
		}
	}
	for _, l := range all {
		switch {
		// Links to other pages, which other tests open.
		case strings.HasPrefix(l.path, "https://"), !strings.HasPrefix(l.path, "/docs") && strings.HasPrefix(l.path, "/"):
			continue
		case strings.HasSuffix(l.path, ".md") || !strings.HasPrefix(l.path, "/"):
			t.Errorf("%s links to %s", l.from, l.path)
			continue
		case ids[l.path] == nil:
			read(l.path)
		}
		if l.fragment != "" && !ids[l.path][l.fragment] {
			t.Errorf("%s links to %s#%s, which that page does not have", l.from, l.path, l.fragment)
		}
	}
	for _, schema := range []string{"configuration", "settings"} {
		path := "docs/" + schema + ".schema.json"
		text, err := os.ReadFile("../" + path)
		if err != nil {
			t.Fatal(err)
		}
		if r := w.get("/"+path, ""); r.Code != http.StatusOK || r.body != string(text) || r.Header().Get("Content-Type") != "application/schema+json" {
			t.Errorf("/%s: %d %v", path, r.Code, r.Header())
		}
	}
	if r := w.get("/docs/guides/none", ""); r.Code != http.StatusNotFound {
		t.Errorf("a guide that does not exist: %d", r.Code)
	}
	text, err := os.ReadFile("../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
	if body := w.get("/docs/guides/algorithms", "").body; !strings.Contains(body, title+"</h1>") || !strings.Contains(body, `<div class="scroll"`) {
		t.Error("the guide of algorithms is not shown with its title and tables")
	}
}
