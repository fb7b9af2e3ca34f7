package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A fault is one response of the server of faults. If Body is a JSON string, its text is sent.
// Any other body is sent as JSON.
type fault struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	// Hang holds the connection open without an answer: "before" the headers, or
	// "within" the body.
	Hang string `json:"hang"`
	// Close closes the connection: "before" the headers, or "within" the body.
	Close string `json:"close"`
}

// received is a call that the server of faults received.
type received struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"` // with the query
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`   // null: none
	Remote  string            `json:"remote"` // the address of the client's connection
}

type faultServer struct {
	url    string
	server *http.Server
	faults map[string][]fault
	ending chan struct{}

	mu    sync.Mutex
	calls map[string][]received // received calls, by scenario and run
}

func serveFaults(s suite) (*faultServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &faultServer{url: "http://" + listener.Addr().String(), faults: map[string][]fault{}, calls: map[string][]received{}, ending: make(chan struct{})}
	for _, scenario := range s.Scenarios {
		f.faults[scenario.Name] = scenario.Faults
	}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	go func() { _ = f.server.Serve(listener) }()
	return f, nil
}

func (f *faultServer) close() {
	close(f.ending)
	_ = f.server.Close()
}

func (f *faultServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) != 3 || len(f.faults[parts[0]]) == 0 {
		http.Error(w, "no such scenario: "+r.URL.Path, http.StatusTeapot)
		return
	}
	run := parts[0] + "/" + parts[1]
	if r.Method == http.MethodGet && parts[2] == "calls" {
		f.mu.Lock()
		defer f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(append([]received{}, f.calls[run]...))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if len(body) == 0 {
		body = []byte("null")
	}
	path := "/" + parts[2]
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	call := received{Method: r.Method, Path: path, Headers: map[string]string{}, Body: body, Remote: r.RemoteAddr}
	for name := range r.Header {
		call.Headers[strings.ToLower(name)] = r.Header.Get(name)
	}
	f.mu.Lock()
	n := len(f.calls[run])
	f.calls[run] = append(f.calls[run], call)
	f.mu.Unlock()
	answers := f.faults[parts[0]]
	f.answer(w, r, answers[min(n, len(answers)-1)])
}

func (f *faultServer) answer(w http.ResponseWriter, r *http.Request, a fault) {
	hang := func() {
		select {
		case <-r.Context().Done():
		case <-f.ending:
		}
	}
	if a.Hang == "before" {
		hang()
		return
	}
	if a.Close == "before" {
		panic(http.ErrAbortHandler)
	}
	text := []byte(a.Body)
	var plain string
	if json.Unmarshal(a.Body, &plain) == nil {
		text = []byte(plain)
	}
	w.Header().Set("Content-Type", "application/json")
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(a.Status)
	if a.Hang == "" && a.Close == "" {
		_, _ = w.Write(text)
		return
	}
	_, _ = w.Write(text[:len(text)/2])
	_ = http.NewResponseController(w).Flush()
	if a.Hang == "within" {
		hang()
	}
	panic(http.ErrAbortHandler)
}
