package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page renders in each theme, and each file that it names exists.
func TestHandler(t *testing.T) {
	t.Parallel()
	h := handler(os.DirFS("../../web/static"))
	get := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		return r
	}
	files := map[string]bool{}
	for _, theme := range []string{"", "light", "dark", "none"} {
		page := get("/?theme=" + theme)
		if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "Every component in every state.") {
			t.Fatalf("theme %q: status %d", theme, page.Code)
		}
		if known := theme == "light" || theme == "dark"; known != strings.Contains(page.Body.String(), "data-theme=") {
			t.Errorf("theme %q: the page has the wrong theme", theme)
		}
		for _, file := range regexp.MustCompile(`(?:src|href)="(/(?:static|headgate)[^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1) {
			files[file[1]] = true
		}
	}
	for _, file := range regexp.MustCompile(`url\("([^"]*)"\)`).FindAllStringSubmatch(get("/headgate.css").Body.String(), -1) {
		files[file[1]] = true
	}
	if len(files) < 8 {
		t.Fatalf("the page names only %d files", len(files))
	}
	for file := range files {
		if get(file).Code != http.StatusOK {
			t.Errorf("%s does not exist", file)
		}
	}
}
