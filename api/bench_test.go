package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/tenants"
)

// discard is a response writer that drops the body.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

type body struct{ strings.Reader }

func (*body) Close() error { return nil }

// BenchmarkCheck is one whole POST /v1/check, without the network.
func BenchmarkCheck(b *testing.B) {
	w := newWorld(b)
	benchmarkCheck(b, w, w.operator)
}

// BenchmarkWrongKey measures the cost of a key that has the right form and does not exist:
// one hash, one lookup in a map, and the 401.
func BenchmarkWrongKey(b *testing.B) {
	benchmarkCheck(b, newWorld(b), tenants.NewToken(tenants.OperatorToken))
}

// BenchmarkMistypedKey measures a key that does not have the right form. It needs no hash and
// no lookup.
func BenchmarkMistypedKey(b *testing.B) {
	w := newWorld(b)
	benchmarkCheck(b, w, w.operator[:len(w.operator)-1]+"!")
}

func benchmarkCheck(b *testing.B, w *world, key string) {
	b.Helper()
	r := httptest.NewRequest("POST", "/v1/check", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	var text body
	r.Body, r.ContentLength = &text, int64(len(login))
	b.ReportAllocs()
	for b.Loop() {
		text.Reset(login)
		w.api.ServeHTTP(discard{http.Header{}}, r)
	}
}

// TestCheckAllocates limits the allocations of a check to two more than those of an echo
// handler that reads the body and writes as many bytes. The two are the text of the body, of
// which the attributes are parts, and the text of the headers.
func TestCheckAllocates(t *testing.T) {
	if raced {
		t.Skip("the pools of the race detector drop what they hold")
	}
	w := newWorld(t)
	e := echo.New()
	answer := make([]byte, 430)
	e.POST("/v1/check", func(c echo.Context) error {
		if _, err := io.Copy(io.Discard, c.Request().Body); err != nil {
			return err
		}
		return c.Blob(http.StatusOK, "application/json", answer)
	})
	allocations := func(h http.Handler, key, text string) float64 {
		r := httptest.NewRequest("POST", "/v1/check", nil)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		var in body
		r.Body, r.ContentLength = &in, int64(len(text))
		return testing.AllocsPerRun(500, func() {
			in.Reset(text)
			h.ServeHTTP(discard{http.Header{}}, r)
		})
	}
	for _, text := range []string{strings.Replace(login, `{"tenant"`, `{"cost":0,"tenant"`, 1), login} {
		noop, check := allocations(e, w.operator, text), allocations(w.api, w.operator, text)
		if check > noop+2 {
			t.Errorf("%v allocations, and %v of a handler that decides nothing: %s", check, noop, text)
		}
	}
}

// A batch allocates as much for 96 checks as for 32.
func TestBatchAllocatesNothingForACheck(t *testing.T) {
	if raced {
		t.Skip("the pools of the race detector drop what they hold")
	}
	w := newWorld(t)
	one := strings.Replace(login, `{"tenant"`, `{"cost":0,"tenant"`, 1)
	allocations := func(checks int) float64 {
		text := `{"checks":[` + strings.Repeat(one+",", checks-1) + one + `]}`
		r := httptest.NewRequest("POST", "/v1/check/batch", nil)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+w.operator)
		var in body
		r.Body, r.ContentLength = &in, int64(len(text))
		return testing.AllocsPerRun(200, func() {
			in.Reset(text)
			w.api.ServeHTTP(discard{http.Header{}}, r)
		})
	}
	if few, many := allocations(32), allocations(96); many > few+2 { // for 64 more checks; a garbage collection can empty a pool
		t.Errorf("%v allocations for 32 checks, %v for 96", few, many)
	}
}
