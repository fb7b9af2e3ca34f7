package main

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookAtFiles is the minimum time between two checks whether the certificate files have changed. A
// new connection triggers such a check.
const lookAtFiles = time.Second

// A certificate is the TLS certificate of the node. It is loaded again when one of its files
// changes, so that a renewed certificate needs no restart.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu       sync.Mutex
	loaded   *tls.Certificate
	versions [2]fileVersion // sizes and times of both files when they were last loaded
	looked   time.Time
}

type fileVersion struct {
	changed time.Time
	size    int64
}

// get implements tls.Config.GetCertificate. If a file has changed and cannot be used, get logs a
// warning and returns the previous certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && time.Since(c.looked) < lookAtFiles {
		return c.loaded, nil
	}
	c.looked = time.Now()
	versions := [2]fileVersion{versionOf(c.certFile), versionOf(c.keyFile)}
	if c.loaded != nil && versions == c.versions {
		return c.loaded, nil
	}
	c.versions = versions
	found, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	switch {
	case err == nil && c.loaded != nil:
		c.log.Info("the TLS certificate was loaded again", "file", c.certFile)
	case err != nil && c.loaded != nil:
		c.log.Warn("the changed TLS certificate cannot be used; the former one stays in use", "file", c.certFile, "error", err)
		return c.loaded, nil
	case err != nil:
		return nil, err
	}
	c.loaded = &found
	return c.loaded, nil
}

// versionOf returns the size and the time of the last change of a file. If the file cannot be read,
// it returns the zero value.
func versionOf(name string) fileVersion {
	info, err := os.Stat(name)
	if err != nil {
		return fileVersion{}
	}
	return fileVersion{info.ModTime(), info.Size()}
}
