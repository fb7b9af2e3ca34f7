package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/cli"
)

// healthcheckCommand is headgate healthcheck. It requests /readyz from the node on this machine. It
// finds the address of the node in the environment variables that also configure the node.
type healthcheckCommand struct {
	cli.Output
	Addr        string        `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the node listens."`
	TLSCertFile string        `name:"tls-cert-file" placeholder:"FILE" help:"Set when the node serves https."`
	Wait        time.Duration `default:"5s" setting:"false" help:"How long to wait for the answer."`
}

func (h healthcheckCommand) Run(ctx context.Context, t cli.Terminal) error {
	host, port, err := net.SplitHostPort(h.Addr)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", settingName("addr"), validAddr(h.Addr))}
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	client := &http.Client{Timeout: h.Wait, Transport: &http.Transport{
		// The request goes to the local address of the node, and the certificate has the public
		// name. So the certificate is not verified.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	scheme := "http"
	if h.TLSCertFile != "" {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s answered %s", request.URL, response.Status)
	}
	return h.Text(t, map[string]any{"ready": true, "url": request.URL.String()}, "ready\n")
}
