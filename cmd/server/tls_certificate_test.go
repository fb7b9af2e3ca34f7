package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeCertificate writes a certificate for 127.0.0.1 and its key into a folder.
func writeCertificate(t *testing.T, folder string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	replace(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	replace(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return cert, key
}

// replace puts content in the place of a file, as tools that renew certificates do.
func replace(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// A renewed certificate is served without a restart. Files that cannot be used change
// nothing, and are logged.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cert, key := writeCertificate(t, folder, 1)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_TLS_CERT_FILE": cert, "HEADGATE_TLS_KEY_FILE": key,
	})
	address := strings.TrimPrefix(node.origin, "https://")
	serial := func() int64 {
		t.Helper()
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test looks at the certificate
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 1 {
		t.Errorf("the first certificate has the serial number %d", n)
	}
	writeCertificate(t, folder, 2)
	eventually(t, "the renewed certificate is served", func() bool { return serial() == 2 })
	replace(t, cert, []byte("no certificate"))
	eventually(t, "the broken file is logged", func() bool {
		if n := serial(); n != 2 {
			t.Errorf("with a broken file, the certificate %d is served", n)
		}
		return strings.Contains(node.logs.String(), "the former one stays in use")
	})
}

// A secret is read again only if it came from its file.
func TestReread(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	replace(t, file, []byte("redis://a:first@host\n"))
	for name, c := range map[string]struct {
		environment map[string]string
		used        string
		again       bool
	}{
		"file":              {map[string]string{"HEADGATE_REDIS_URL_FILE": file}, "redis://a:first@host", true},
		"variable and file": {map[string]string{"HEADGATE_REDIS_URL_FILE": file, "HEADGATE_REDIS_URL": "redis://b"}, "redis://b", false},
		"flag and file":     {map[string]string{"HEADGATE_REDIS_URL_FILE": file}, "redis://flag", false},
		"neither":           {nil, "", false},
	} {
		s := &serveSettings{getenv: func(name string) string { return c.environment[name] }}
		if again := s.reread("redis-url", c.used) != nil; again != c.again {
			t.Errorf("%s: read again: %t", name, again)
		}
	}
	s := &serveSettings{getenv: func(name string) string { return map[string]string{"HEADGATE_REDIS_URL_FILE": file}[name] }}
	again := s.reread("redis-url", "redis://a:first@host")
	replace(t, file, []byte("redis://a:second@host\n"))
	if url, err := again(); url != "redis://a:second@host" || err != nil {
		t.Errorf("%q, %v", url, err)
	}
}

// Failed handshakes of one kind fill no log: they are one line a minute.
func TestFailedHandshakesAreFolded(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t, t.TempDir(), 1)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_TLS_CERT_FILE": cert, "HEADGATE_TLS_KEY_FILE": key,
	})
	address := strings.TrimPrefix(node.origin, "https://")
	const tries = 20
	for range tries {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the node has closed it
		_ = conn.Close()
	}
	node.end() // it writes the folded line
	text := node.logs.String()
	if n := strings.Count(text, "TLS handshake error"); n != 2 || !strings.Contains(text, `"repeated":19`) {
		t.Errorf("%d lines for %d failed handshakes:\n%s", n, tries, text)
	}
}
