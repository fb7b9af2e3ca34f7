package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/docs"
)

func handler(t *testing.T) http.Handler {
	t.Helper()
	w, err := web.New(web.Config{Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	documentation, err := docs.Routes(w, docs.Config{Spec: headgate.Spec, Guides: headgate.Guides})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	w.Register(e, documentation)
	return e
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "http://limits.example"+path, nil))
	return recorder
}

// The reference has every operation of openapi.yaml, with a curl command.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	spec, err := openapi3.NewLoader().LoadFromData(headgate.Spec)
	if err != nil {
		t.Fatal(err)
	}
	page := get(t, handler(t), "/docs").Body.String()
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			article := regexp.MustCompile(`(?s)<article class="operation" id="op-` + operation.OperationID + `">(.*?)</article>`).FindString(page)
			if article == "" {
				t.Errorf("%s %s (%s) is not in the reference", method, path, operation.OperationID)
				continue
			}
			if !strings.Contains(article, "curl -i") || !strings.Contains(article, "http://limits.example/") {
				t.Errorf("%s has no curl", operation.OperationID)
			}
			if call := regexp.MustCompile(`curl -i[^<]*`).FindString(article); strings.Contains(call, "{"+"tenant}") || strings.Contains(call, "{plan}") || strings.Contains(call, "{key}") {
				t.Errorf("%s: the curl has a placeholder: %s", operation.OperationID, call)
			}
			for status := range operation.Responses.Map() {
				if !strings.Contains(article, ">"+status+"<") {
					t.Errorf("%s: answer %s is missing", operation.OperationID, status)
				}
			}
		}
	}
}

// Every problem type has a page, and the list contains all types.
func TestProblemPages(t *testing.T) {
	t.Parallel()
	h := handler(t)
	list := get(t, h, "/docs/problems").Body.String()
	for _, p := range problem.Catalog {
		path := "/docs/problems/" + p.Name
		page := get(t, h, path)
		if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "<h1>"+p.Title+"</h1>") {
			t.Errorf("%s: %d", path, page.Code)
		}
		for _, c := range problem.CodesOf(p.Name) {
			if !strings.Contains(page.Body.String(), "<code>"+c.Name+"</code>") {
				t.Errorf("%s does not list the code %s", path, c.Name)
			}
		}
		if !strings.Contains(list, path) {
			t.Errorf("%s is not in the list", path)
		}
	}
	if page := get(t, h, "/docs/problems/none"); page.Code != http.StatusNotFound {
		t.Errorf("an unknown type answers %d", page.Code)
	}
}

// No page has inline scripts or styles, or refers to another host. The Content-Security-Policy
// of each page says so.
func TestPagesAreStrict(t *testing.T) {
	t.Parallel()
	h := handler(t)
	inline := regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son[a-z]+=|javascript:|(src|href)="(https?:)?//`)
	asset := regexp.MustCompile(`(?:src|href)="(/static/[^"]*)"`)
	for _, path := range []string{"/docs", "/docs/problems", "/docs/problems/no-policy", "/docs/problems/none"} {
		page := get(t, h, path)
		policy := page.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if page.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: no nosniff", path)
		}
		if found := inline.FindString(page.Body.String()); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		for _, m := range asset.FindAllStringSubmatch(page.Body.String(), -1) {
			file := get(t, h, m[1])
			if file.Code != http.StatusOK || !strings.Contains(file.Header().Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %d, %q", m[1], file.Code, file.Header().Get("Cache-Control"))
			}
		}
	}
	if file := get(t, h, "/static/headgate.css"); file.Code != http.StatusNotFound {
		t.Errorf("a file without its hash answers %d", file.Code)
	}
}

// An unknown path gets a problem document, or an error page in a browser. The response to a
// wrong method has the methods of the page.
func TestWhatIsNoPage(t *testing.T) {
	t.Parallel()
	h := handler(t)
	for _, c := range []struct {
		method, path, accept, allow, media string
		status                             int
	}{
		{"GET", "/V1/check", "", "", "application/problem+json", 404},
		{"GET", "/docs/", "*/*", "", "application/problem+json", 404},
		{"GET", "/favicon.ico", "image/*", "", "application/problem+json", 404},
		{"GET", "/none", "text/html,*/*;q=0.8", "", "text/html; charset=UTF-8", 404},
		{"GET", "/static/none.css", "", "", "application/problem+json", 404},
		{"POST", "/docs", "text/html", "OPTIONS, GET, HEAD", "application/problem+json", 405},
		{"DELETE", "/", "", "OPTIONS, GET, HEAD", "application/problem+json", 405},
	} {
		r := httptest.NewRequest(c.method, "http://limits.example"+c.path, nil)
		r.Header.Set("Accept", c.accept)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		got := rec.Header()
		if rec.Code != c.status || got.Get("Content-Type") != c.media || got.Get("Allow") != c.allow || got.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %d %v", c.method, c.path, rec.Code, got)
		}
		if c.media != "application/problem+json" {
			continue
		}
		var p struct {
			Kind, Type, Title, Detail string
			Status                    int
			RequestID                 string `json:"request_id"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || p.Status != c.status || p.RequestID == "" || p.RequestID != got.Get("X-Request-Id") ||
			p.Kind != "problem" || p.Detail == "" {
			t.Errorf("%s %s: %s", c.method, c.path, rec.Body)
		}
		if page := get(t, h, p.Type); page.Code != http.StatusOK {
			t.Errorf("%s has no page", p.Type)
		}
	}
}

// A page that panics gets a problem document, and the connection stays open.
func TestPanicOfAPage(t *testing.T) {
	t.Parallel()
	w, err := web.New(web.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	w.Register(e)
	e.GET("/broken", func(echo.Context) error { panic("secret") }, web.Recovered)
	if page := get(t, e, "/broken"); page.Code != http.StatusInternalServerError || strings.Contains(page.Body.String(), "secret") {
		t.Errorf("%d %s", page.Code, page.Body)
	}
}
