package mail_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mail"
	"github.com/headgate/headgate/internal/servertest/smtp"
)

func mailer(t *testing.T, s *smtp.Server, security string, change func(*mail.Config)) *mail.Mailer {
	t.Helper()
	cfg := mail.Config{Addr: s.Addr, From: "Headgate <limits@example.com>", TLS: security, Roots: s.Roots}
	if change != nil {
		change(&cfg)
	}
	m, err := mail.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var hello = mail.Message{ID: "1", To: "ann@example.org", Subject: "Grüße: 95 %\r\nBcc: eve@example.org", Text: "Line one.\n.\nLine three.\n"}

// A message arrives over each kind of connection, with and without sign-in. Nothing in a
// message adds a header.
func TestSend(t *testing.T) {
	t.Parallel()
	for _, security := range []string{mail.StartTLS, mail.Implicit, mail.None} {
		for _, user := range []string{"", "headgate"} {
			t.Run(security+user, func(t *testing.T) {
				t.Parallel()
				s := smtp.Start(t, security)
				if user != "" {
					s.User, s.Password = user, "secret"
				}
				m := mailer(t, s, security, func(c *mail.Config) { c.User, c.Password = s.User, s.Password })
				if err := m.Send(t.Context(), hello); err != nil {
					t.Fatal(err)
				}
				list, _ := s.Mails()
				if len(list) != 1 || list[0].From != "limits@example.com" || list[0].To != "ann@example.org" {
					t.Fatalf("%+v", list)
				}
				head, body, _ := strings.Cut(list[0].Data, "\r\n\r\n")
				if !strings.Contains(head, "Message-ID: <1@example.com>") || strings.Contains(head, "\nBcc:") || !strings.Contains(head, "Auto-Submitted: auto-generated") {
					t.Error(head)
				}
				if !strings.Contains(body, "Line three.") {
					t.Error(body)
				}
			})
		}
	}
}

// A rejected address has another error than failures that can pass.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := smtp.Start(t, mail.StartTLS)
	send := func(change func(*mail.Config), to string) error {
		m := mailer(t, s, mail.StartTLS, change)
		message := hello
		message.To = to
		return m.Send(t.Context(), message)
	}
	s.Reject("gone@example.org", 550)
	s.Reject("busy@example.org", 451)
	for _, c := range []struct {
		name     string
		err      error
		rejected bool
		says     string
	}{
		{"no such address", send(nil, "gone@example.org"), true, "550"},
		{"not now", send(nil, "busy@example.org"), false, "451"},
		{"an unknown authority", send(func(c *mail.Config) { c.Roots = nil }, "ann@example.org"), false, "certificate"},
		{"a server without TLS", func() error {
			plain := smtp.Start(t, mail.None)
			return mailer(t, plain, mail.StartTLS, nil).Send(t.Context(), hello)
		}(), false, "STARTTLS"},
		{"a server that is away", send(func(c *mail.Config) { c.Addr = "127.0.0.1:1" }, "ann@example.org"), false, "refused"},
		{"a wrong password", func() error {
			closed := smtp.Start(t, mail.StartTLS)
			closed.User, closed.Password = "headgate", "secret"
			return mailer(t, closed, mail.StartTLS, func(c *mail.Config) { c.User, c.Password = "headgate", "wrong" }).Send(t.Context(), hello)
		}(), false, "535"},
	} {
		if c.err == nil || errors.Is(c.err, mail.ErrRejected) != c.rejected || !strings.Contains(mail.Answer(c.err), c.says) {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	if list, _ := s.Mails(); len(list) != 0 {
		t.Errorf("arrived: %+v", list)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []mail.Config{
		{Addr: "smtp.example.com", From: "a@example.com"},
		{Addr: "smtp.example.com:0", From: "a@example.com"},
		{Addr: "smtp.example.com:587", From: "a"},
		{Addr: "smtp.example.com:587", From: "a@example.com", User: "u"},
		{Addr: "smtp.example.com:25", From: "a@example.com", TLS: mail.None, User: "u", Password: "p"},
	} {
		if _, err := mail.New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
