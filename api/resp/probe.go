package resp

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
)

// Probe returns an error if no Headgate serves the Redis protocol at addr. The error says what answers
// there instead. Probe needs no API key. config is nil for a connection without TLS.
func Probe(ctx context.Context, addr string, config *tls.Config) error {
	conn, err := dial(ctx, addr, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := io.WriteString(conn, "HELLO\r\n"); err != nil {
		return err
	}
	// The reply begins with the size of the map, and with the name and the value of "server" with their sizes.
	var reply []string
	lines := bufio.NewScanner(io.LimitReader(conn, 256))
	for len(reply) < 5 && lines.Scan() {
		reply = append(reply, lines.Text())
		if len(reply) == 5 && strings.HasPrefix(reply[0], "*") && reply[2] == "server" && reply[4] == "headgate" {
			return nil
		}
		if !strings.HasPrefix(reply[0], "*") {
			break
		}
	}
	if len(reply) == 0 {
		return fmt.Errorf("%s does not answer HELLO", addr)
	}
	return fmt.Errorf("%s answers HELLO with %q", addr, strings.Join(reply, " "))
}

func dial(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
}
