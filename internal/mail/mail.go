// Package mail sends e-mail over SMTP. It is the only package that imports an SMTP client.
package mail

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// Values of Config.TLS.
const (
	StartTLS = "starttls" // a connection without encryption that must switch to TLS before anything is sent
	Implicit = "tls"      // TLS from the first byte
	None     = "none"     // no TLS; only for a server on this machine
)

// Config of a Mailer.
type Config struct {
	// Addr is the host and the port of the server.
	Addr string
	// From is the sender: "limits@example.com", or "Headgate <limits@example.com>".
	From string
	// User and Password are for the sign-in at the server. Both are "" if the server requires no
	// sign-in.
	User, Password string
	// TLS is StartTLS, Implicit or None. Default StartTLS.
	TLS string
	// Roots are the certificate authorities that the Mailer trusts. Default: the authorities of the
	// operating system.
	Roots *x509.CertPool
}

// timeout is the maximum time for the delivery of one message. A server may take long before it
// accepts a message.
const timeout = 30 * time.Second

// A Message is a message to one address. Its text is plain text.
type Message struct {
	// ID is the local part of the Message-ID. All attempts to send one message use the same ID, so
	// that receivers can recognize a duplicate.
	ID, To, Subject, Text string
}

// A Mailer sends messages. It is safe for concurrent use.
type Mailer struct {
	cfg    Config
	host   string
	port   int
	from   *mail.Address
	domain string // of the sender
}

// New returns a Mailer. It opens no connection.
func New(cfg Config) (*Mailer, error) {
	cfg.TLS = cmp.Or(cfg.TLS, StartTLS)
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("%q is not a host and a port, such as smtp.example.com:587", cfg.Addr)
	}
	m := &Mailer{cfg: cfg, host: host}
	if m.port, err = strconv.Atoi(port); err != nil || m.port < 1 || m.port > 65535 {
		return nil, fmt.Errorf("%q has no port from 1 to 65535", cfg.Addr)
	}
	if m.from, err = mail.ParseAddress(cfg.From); err != nil {
		return nil, fmt.Errorf("%q is not an e-mail address", cfg.From)
	}
	m.domain = m.from.Address[strings.LastIndexByte(m.from.Address, '@')+1:]
	if (cfg.User == "") != (cfg.Password == "") {
		return nil, errors.New("user and password go together: set both or none")
	}
	if cfg.User != "" && cfg.TLS == None && !loopback(host) {
		return nil, errors.New("a password is not sent without TLS")
	}
	return m, nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ErrRejected is the error for a message that the server will never accept, such as one to an
// address that does not exist.
var ErrRejected = errors.New("the server rejected the message")

// Send tries once to deliver a message to the server. If the message would fail again, the error
// wraps ErrRejected.
func (m *Mailer) Send(ctx context.Context, message Message) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(m.from)
	if err := msg.To(message.To); err != nil {
		return fmt.Errorf("%w: the address cannot be used", ErrRejected)
	}
	msg.Subject(message.Subject)
	msg.SetDate()
	msg.SetMessageIDWithValue(message.ID + "@" + m.domain)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no vacation notices
	msg.SetBodyString(gomail.TypeTextPlain, message.Text)
	client, err := gomail.NewClient(m.host, m.options()...)
	if err != nil {
		return err
	}
	err = client.DialAndSendWithContext(ctx, msg)
	if rejected := (*gomail.SendError)(nil); errors.As(err, &rejected) && rejected.ErrorCode() >= 500 && permanent(rejected.Reason) {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return err
}

// permanent reports whether a 5xx response at this step is caused by the message. At other steps,
// the cause is the sender or the sign-in, which an operator can correct.
func permanent(r gomail.SendErrReason) bool {
	return r == gomail.ErrSMTPRcptTo || r == gomail.ErrSMTPData || r == gomail.ErrSMTPDataClose
}

func (m *Mailer) options() []gomail.Option {
	list := []gomail.Option{gomail.WithPort(m.port), gomail.WithTimeout(timeout), gomail.WithHELO(m.domain)}
	config := &tls.Config{ServerName: m.host, RootCAs: m.cfg.Roots, MinVersion: tls.VersionTLS12}
	switch m.cfg.TLS {
	case Implicit:
		list = append(list, gomail.WithSSL(), gomail.WithTLSConfig(config))
	case None:
		list = append(list, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		list = append(list, gomail.WithTLSPolicy(gomail.TLSMandatory), gomail.WithTLSConfig(config))
	}
	if m.cfg.User != "" {
		auth := gomail.SMTPAuthAutoDiscover
		if m.cfg.TLS == None { // on this machine
			auth = gomail.SMTPAuthPlainNoEnc
		}
		list = append(list, gomail.WithSMTPAuth(auth), gomail.WithUsername(m.cfg.User), gomail.WithPassword(m.cfg.Password))
	}
	return list
}

// Answer returns why Send failed, in one line for people.
func Answer(err error) string {
	var dns *net.DNSError
	switch send := (*gomail.SendError)(nil); {
	case errors.As(err, &dns):
		return "the name of the mail server cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded):
		return "the mail server did not answer within 30 s"
	case errors.As(err, &send):
		return strings.Join(strings.Fields(send.Error()), " ")
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
