package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/api/envoy"
	"github.com/headgate/headgate/api/resp"
	"github.com/headgate/headgate/internal/connlimit"
	"github.com/headgate/headgate/internal/oidc"
)

// A wire is a server for checks over a protocol other than HTTP, on its own listener.
type wire interface {
	Serve(l *connlimit.Listener) error
	Open(a *api.API)
	Shutdown(ctx context.Context) error
}

// wires holds the wires that the settings enable. The key is the name of the setting.
type wires map[string]wire

// listenWires opens a listener for each enabled wire, and starts to serve it.
func (s *serveCommand) listenWires(tasks *errgroup.Group, log *slog.Logger) (_ wires, err error) {
	open := wires{}
	defer func() {
		if err != nil {
			open.close()
		}
	}()
	var config *tls.Config
	if s.TLSCertFile != "" {
		config = s.tlsConfig(log)
	}
	domains, _ := envoy.ParseDomains(s.EnvoyDomains) // validate has checked the setting
	for _, w := range []struct {
		setting, addr, serving string
		wire                   wire
	}{
		{"resp-addr", s.RESPAddr, "serving the Redis protocol", resp.New(resp.Config{Version: version, TLS: config, Logger: log})},
		{"envoy-addr", s.EnvoyAddr, "serving the gRPC services of Envoy", envoy.New(envoy.Config{
			Domains: domains, Key: s.EnvoyKey, TLS: mutualTLS(config, s.EnvoyClientCAFile), Logger: log,
		})},
	} {
		if w.addr == "" {
			continue
		}
		listener, err := net.Listen("tcp", w.addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", settingName(w.setting), err)
		}
		open[w.setting] = w.wire
		tasks.Go(func() error { return w.wire.Serve(s.limitConnections(listener, log)) })
		log.Info(w.serving, "addr", listener.Addr().String())
	}
	return open, nil
}

// mutualTLS returns a copy of config that requires client certificates. An authority in the PEM
// file must have signed them. validate has already checked the file. If file is "", mutualTLS
// returns config unchanged.
func mutualTLS(config *tls.Config, file string) *tls.Config {
	if config == nil || file == "" {
		return config
	}
	mutual := config.Clone()
	mutual.ClientAuth = tls.RequireAndVerifyClientCert
	mutual.ClientCAs, _ = readAuthorities(file)
	return mutual
}

// validAuthorities returns an error if the setting envoy-client-ca-file cannot be used.
func validAuthorities(cert, file string) error {
	if file == "" {
		return nil
	}
	if cert == "" {
		return errors.New("needs " + settingName("tls-cert-file") + ", because a client certificate is part of TLS")
	}
	_, err := readAuthorities(file)
	return err
}

func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

// verifyJWT returns the function that verifies the JWTs of clients. If no keys are set, it
// returns nil.
func (s *serveSettings) verifyJWT() (func(context.Context, string) ([]byte, error), error) {
	if s.JWTKeys == "" {
		return nil, nil
	}
	v, err := oidc.NewVerifier(oidc.JWTConfig{Keys: s.JWTKeys, Issuer: s.JWTIssuer, Audience: s.JWTAudience})
	if err != nil {
		return nil, err
	}
	return v.Verify, nil
}

// validJWT returns an error if the settings of JWTs cannot be used.
func (s *serveSettings) validJWT() error {
	if s.JWTKeys == "" && (s.JWTIssuer != "" || s.JWTAudience != "") {
		return errors.New("is needed with " + settingName("jwt-issuer") + " and " + settingName("jwt-audience") +
			": without keys, JWTs are not verified")
	}
	_, err := s.verifyJWT()
	return err
}

// open sets a as the API that decides the checks of all wires.
func (all wires) open(a *api.API) {
	for _, w := range all {
		w.Open(a)
	}
}

// shutdown stops all wires. Each wire first sends the replies to the checks that have arrived, and
// then closes its connections.
func (all wires) shutdown(ctx context.Context) error {
	var errs []error
	for setting, w := range all {
		if err := w.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: checks were still running: %w", settingName(setting), err))
		}
	}
	return errors.Join(errs...)
}

// close closes the connections of all wires at once.
func (all wires) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = all.shutdown(ctx)
}
