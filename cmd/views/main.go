// Command views serves a page that shows every component of the dashboard in every state, for
// developers of the dashboard. Run it in the root of the repository: go run ./cmd/views.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/headgate/headgate/web/views"
)

func main() {
	address := flag.String("addr", "127.0.0.1:8090", "address to serve the page at")
	static := flag.String("static", "web/static", "directory of the style sheets, fonts, and scripts")
	flag.Parse()
	server := http.Server{Addr: *address, Handler: handler(os.DirFS(*static)), ReadHeaderTimeout: 5 * time.Second}
	fmt.Println("serving the components at http://" + *address)
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// handler serves the sample page at / and the static files that the page uses.
func handler(static fs.FS) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(static)))
	mux.HandleFunc("GET /headgate.css", func(w http.ResponseWriter, _ *http.Request) {
		css, err := views.Stylesheet(static)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(bytes.ReplaceAll(css, []byte(`url("`), []byte(`url("/static/fonts/`)))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		theme := r.URL.Query().Get("theme")
		if theme != "light" && theme != "dark" {
			theme = ""
		}
		page := views.Page{
			Title: "Components", Version: "sample", Path: "/", Theme: theme, Charts: true,
			Assets: views.Assets{
				Stylesheet: "/headgate.css", Icon: "/static/icon.svg", Font: "/static/fonts/inter-latin-5.3.0.woff2",
				Htmx: "/static/vendor/htmx-2.0.11.min.js", SSE: "/static/vendor/htmx-ext-sse-2.2.4.min.js",
				UPlot: "/static/vendor/uplot-1.6.32.iife.min.js", Script: "/static/js/headgate.js",
				Chart: "/static/js/chart.js", Draft: "/static/js/draft.js", Passkey: "/static/js/passkey.js",
			},
			Person: &views.Person{Name: "Ada Lovelace", Role: "Owner", Nav: []views.NavGroup{
				{Links: []views.NavLink{{Text: "Components", URL: "/", Icon: "layers"}, {Text: "Other page", URL: "/other", Icon: "gauge"}}},
			}},
			Crumbs: []views.Link{{Text: "Sample", URL: "/"}, {Text: "Components"}},
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := views.SamplePage(page).Render(r.Context(), w); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	return mux
}
