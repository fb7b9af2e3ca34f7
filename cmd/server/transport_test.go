package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
)

// get sends one GET request. It does not ask for compression, which http.Client does by
// default.
func get(t *testing.T, client *http.Client, url, key, accept string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if accept != "" {
		r.Header.Set("Accept-Encoding", accept)
	}
	a, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, string(body)
}

// Large JSON answers are compressed if the client accepts it, and have the same entity tag. Decisions are not compressed.
func TestCompression(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	operator := node.await(node.out, operatorKeyLine)[1]
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)
	var list struct{ Data []struct{ Slug string } }
	call(t, operator, "GET", node.origin+"/v1/plans", "").want(t, 200).into(t, &list)
	large := node.origin + "/v1/plans/" + list.Data[0].Slug + "/draft"
	plain, want := get(t, client, large, operator, "")
	if len(want) < 1024 || plain.Header.Get("Content-Encoding") != "" || !strings.Contains(plain.Header.Get("Vary"), "Accept-Encoding") {
		t.Fatalf("%d bytes, %v", len(want), plain.Header)
	}
	packed, body := get(t, client, large, operator, "br, gzip")
	if packed.Header.Get("Content-Encoding") != "gzip" || len(body) >= len(want) || packed.Header.Get("ETag") != plain.Header.Get("ETag") || plain.Header.Get("ETag") == "" {
		t.Fatalf("%d bytes of %d, %v", len(body), len(want), packed.Header)
	}
	unpacked, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(unpacked); err != nil || string(text) != want {
		t.Errorf("the compressed answer is %q, %v", text, err)
	}
	if small, _ := get(t, client, node.origin+"/v1/tenants", operator, "gzip"); small.Header.Get("Content-Encoding") != "" {
		t.Errorf("a small answer: %v", small.Header)
	}
	checks := strings.TrimSuffix(strings.Repeat(`{"tenant": "none", "method": "GET", "path": "/"},`, 50), ",")
	if batch := call(t, operator, "POST", node.origin+"/v1/check/batch", `{"checks": [`+checks+`]}`, "Accept-Encoding", "gzip"); batch.header.Get("Content-Encoding") != "" || len(batch.body) < 1024 {
		t.Errorf("a batch: %d bytes, %v", len(batch.body), batch.header)
	}
}

// With the setting, one port serves both versions of HTTP without TLS. Without it, HTTP/2 is rejected.
func TestH2C(t *testing.T) {
	t.Parallel()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	t.Cleanup(client.CloseIdleConnections)
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_H2C": "true"})
	operator := node.await(node.out, operatorKeyLine)[1]
	for _, path := range []string{"/v1/tenants", "/v1/plans", "/livez"} {
		if a, body := get(t, client, node.origin+path, operator, ""); a.StatusCode != 200 || a.ProtoMajor != 2 {
			t.Errorf("%s: %s %d %s", path, a.Proto, a.StatusCode, body)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, node.origin+"/v1/check", strings.NewReader(`{"tenant": "none", "method": "GET", "path": "/"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operator)
	r.Header.Set("Content-Type", "application/json")
	a, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusNotFound || a.ProtoMajor != 2 {
		t.Errorf("a check: %s %d", a.Proto, a.StatusCode)
	}
	call(t, operator, "GET", node.origin+"/v1/tenants", "").want(t, 200)

	other := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	if r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, other.origin+"/livez", nil); err != nil {
		t.Fatal(err)
	}
	if a, err := client.Do(r); err == nil {
		_ = a.Body.Close()
		t.Errorf("without the setting: %s %d", a.Proto, a.StatusCode)
	}
}
