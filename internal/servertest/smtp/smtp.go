// Package smtp is a mail server for tests. It stores the messages that it accepts.
package smtp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// A Mail is an accepted message.
type Mail struct{ From, To, Data string }

// A Server accepts mail on a loopback address until the test ends.
type Server struct {
	Addr string
	// Roots contains the authority that signed the certificate of the server. The certificate is
	// for example.com and 127.0.0.1.
	Roots *x509.CertPool
	// If User and Password are set, clients must sign in with them. Tests set them before the first
	// message.
	User, Password string

	mu       sync.Mutex
	rejected map[string]int // the answer for an address
	mails    []Mail
	attempts int
}

// Start starts a server. security is "tls", "starttls" or "none".
func Start(t testing.TB, security string) *Server {
	t.Helper()
	s := &Server{rejected: map[string]int{}, Roots: x509.NewCertPool()}
	certified := httptest.NewUnstartedServer(nil) // has a certificate
	certified.StartTLS()
	t.Cleanup(certified.Close)
	s.Roots.AddCert(certified.Certificate())
	config := &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{server: s}, nil }))
	server.Domain, server.AllowInsecureAuth = "mail.example.com", security == "none"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = listener.Addr().String()
	switch security {
	case "tls":
		listener = tls.NewListener(listener, config)
	case "starttls":
		server.TLSConfig = config
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		_ = listener.Close() // server.Close does not close the listener if Serve has not begun
		<-ended
	})
	return s
}

// Reject makes the server answer messages to an address with an error code, such as 550 or 451.
// With the code 0, the server accepts them again.
func (s *Server) Reject(address string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected[address] = code
}

// Mails returns the accepted messages. Attempts is the number of messages that clients tried to
// send, accepted or not.
func (s *Server) Mails() (list []Mail, attempts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mails), s.attempts
}

type session struct {
	server *Server
	user   string
	mail   Mail
}

func (s *session) Reset()        { s.mail = Mail{} }
func (s *session) Logout() error { return nil }

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.server.User || password != s.server.Password {
			return smtp.ErrAuthFailed
		}
		s.user = user
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.attempts++
	if s.user != s.server.User {
		return smtp.ErrAuthRequired
	}
	s.mail.From = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if code := s.server.rejected[to]; code != 0 {
		return &smtp.SMTPError{Code: code, Message: "not now, or not here"}
	}
	if s.mail.To != "" {
		return errors.New("one address at a time")
	}
	s.mail.To = to
	return nil
}

func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mail.Data = string(text)
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.mails = append(s.server.mails, s.mail)
	return nil
}
