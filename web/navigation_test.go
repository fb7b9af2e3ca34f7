package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/web"
	"golang.org/x/net/html"
)

// The browser stores the theme. It is in the page from the start, and needs no account. The
// form leads back to the page on which it was used, if that page is on this server.
func TestTheme(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct{ chosen, back, to, cookie string }{
		{"dark", "/people?q=x", "/people?q=x", "dark"},
		{"light", "/account", "/account", "light"},
		{"", "/account", "/account", ""},
		{"dark", "https://elsewhere.example/people", "/", "dark"},
		{"dark", "//elsewhere.example/people", "/", "dark"},
		{"dark", "/none", "/", "dark"},
		{"dark", "%zz", "/", "dark"},
	} {
		r := w.post("/preferences/theme", "owner", url.Values{"theme": {test.chosen}, "back": {test.back}})
		if r.Code != 303 || r.Header().Get("Location") != test.to {
			t.Errorf("%q, %q: %d to %q, want %q", test.chosen, test.back, r.Code, r.Header().Get("Location"), test.to)
		}
		var got *http.Cookie
		for _, c := range r.Result().Cookies() {
			if c.Name == web.ThemeCookie {
				got = c
			}
		}
		if got == nil || got.Value != test.cookie || !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || (got.MaxAge > 0) != (test.cookie != "") {
			t.Errorf("%q: the cookie is %v", test.chosen, got)
		}
	}
	if r := w.post("/preferences/theme", "", url.Values{"theme": {"pink"}}); r.Code != 422 {
		t.Errorf("a theme that is none: %d", r.Code)
	}
	for cookie, want := range map[string]string{"dark": "dark", "light": "light", "pink": ""} {
		page := w.send(http.MethodGet, "/sign-in", "", nil, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: web.ThemeCookie, Value: cookie}) })
		if got := attr(element(page.tree(t), "html"), "data-theme"); got != want {
			t.Errorf("with the cookie %q the page's theme is %q", cookie, got)
		}
	}
}

// element returns the first element of a page with a name.
func element(page *html.Node, name string) *html.Node {
	for n := range page.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			return n
		}
	}
	return nil
}

// The navigation leads only to pages that the person may see, and marks the current page.
func TestNavigation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, f := range folk {
		links := 0
		first := w.get(w.get("/", f.name).Header().Get("Location"), f.name)
		if first.Code != 200 && first.Code != 303 {
			t.Errorf("%s: the first page answers %d", f.name, first.Code)
		}
		for n := range w.get("/account", f.name).tree(t).Descendants() {
			if n.Data != "nav" || attr(n, "aria-label") != "Pages" {
				continue
			}
			for a := range n.Descendants() {
				href := attr(a, "href")
				if a.Data != "a" || strings.HasPrefix(href, "/docs") {
					continue
				}
				links++
				page := w.get(href, f.name)
				if to := page.Header().Get("Location"); page.Code == 303 && strings.HasPrefix(to, href+"/") {
					page = w.get(to, f.name) // the first one of several pages
				}
				if page.Code != 200 {
					t.Errorf("%s: %s answers %d", f.name, href, page.Code)
					continue
				}
				marked := 0
				for n := range page.tree(t).Descendants() {
					if n.Data == "a" && has(n, "aria-current") && attr(n, "href") == href {
						marked++
					}
				}
				if marked == 0 {
					t.Errorf("%s: %s does not say that one is there", f.name, href)
				}
			}
		}
		if links == 0 {
			t.Errorf("%s has nowhere to go", f.name)
		}
	}
}
