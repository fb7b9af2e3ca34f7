package alerts_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/mail"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/servertest/smtp"
)

// A postOffice is a site that sends e-mail.
type postOffice struct {
	*site
	server  *smtp.Server
	sender  *alerts.Sender
	members map[string]bool // addresses of the members of the tenant
}

func newPostOffice(t *testing.T) *postOffice {
	t.Helper()
	p := &postOffice{site: newSite(t), server: smtp.Start(t, mail.StartTLS), members: map[string]bool{"ann@acme.example": true}}
	mailer, err := mail.New(mail.Config{Addr: p.server.Addr, From: "limits@example.com", Roots: p.server.Roots})
	p.must(err)
	member := func(_ context.Context, tenantID, address string) (bool, error) {
		return tenantID == p.tenant.ID && p.members[address], nil
	}
	p.service = alerts.NewService(p.Store, alerts.Config{Mail: true, Member: member, Now: p.now})
	p.sender = alerts.NewSender(alerts.SenderConfig{Store: p.Store, Mail: mailer, Member: member, Now: p.now})
	return p
}

func (p *postOffice) mailbox(owner, address string) alerts.Channel {
	p.Helper()
	c, err := p.service.CreateChannel(p.Context(), owner, alerts.ChannelDocument{Name: "mail", Kind: alerts.Email, URL: "mailto:" + address})
	p.must(err)
	return c
}

func (p *postOffice) attempt() {
	p.Helper()
	_, err := p.sender.Send(p.Context())
	p.must(err)
}

// An alert arrives by e-mail once: also when the server is busy first. An address that does
// not exist ends the attempts.
func TestEmail(t *testing.T) {
	t.Parallel()
	p := newPostOffice(t)
	c, gone := p.mailbox("", "ops@example.org"), p.mailbox("", "gone@example.org")
	p.server.Reject("ops@example.org", 451)
	p.server.Reject("gone@example.org", 550)
	p.rule(c.ID, gone.ID)
	a := p.evaluator("a")
	for range 4 {
		p.count(100, 50)
		p.evaluate(a)
		p.pass(10 * time.Second)
	}
	p.attempt()
	dead, waiting := p.deliveries(alerts.Dead), p.deliveries(alerts.Waiting)
	if len(dead) != 1 || dead[0].ChannelID != gone.ID || !strings.Contains(dead[0].Answer, "550") || len(waiting) != 1 || !strings.Contains(waiting[0].Answer, "451") {
		t.Fatalf("dead %+v\nwaiting %+v", dead, waiting)
	}
	p.server.Reject("ops@example.org", 0)
	p.pass(5 * time.Second)
	p.attempt()
	p.attempt()
	list, attempts := p.server.Mails()
	if len(list) != 1 || attempts != 3 {
		t.Fatalf("%d attempts, accepted %+v", attempts, list)
	}
	head, body, _ := strings.Cut(list[0].Data, "\r\n\r\n")
	if !strings.Contains(head, "Subject: Alert: Acme is limited.") || !strings.Contains(head, "Message-ID: <"+waiting[0].ID+"@example.com>") ||
		!strings.Contains(body, "the threshold is 20%.") {
		t.Error(list[0].Data)
	}
	_, log, err := p.service.Delivery(t.Context(), "", waiting[0].ID)
	p.must(err)
	if len(log) != 2 || !strings.Contains(log[0].Answer, "451") || log[1].Answer != "accepted by the mail server" {
		t.Errorf("%+v", log)
	}
}

// A tenant sends e-mail to its members only, also after a member has left.
func TestEmailOfTenants(t *testing.T) {
	t.Parallel()
	p := newPostOffice(t)
	_, err := p.service.CreateChannel(t.Context(), p.tenant.ID, alerts.ChannelDocument{Name: "a", Kind: alerts.Email, URL: "mailto:eve@example.org"})
	if problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), "member") {
		t.Errorf("a stranger's address: %v", err)
	}
	c := p.mailbox(p.tenant.ID, "ann@acme.example")
	_, err = p.service.Test(t.Context(), p.tenant.ID, c.ID)
	p.must(err)
	p.attempt()
	_, err = p.service.ChangeChannel(t.Context(), p.tenant.ID, c.ID, 1, alerts.ChannelDocument{Name: "a", Kind: alerts.Email, URL: "mailto:eve@example.org"})
	if problem.Of(err) != problem.Invalid {
		t.Errorf("a change to a stranger's address: %v", err)
	}
	delete(p.members, "ann@acme.example")
	_, err = p.service.Test(t.Context(), p.tenant.ID, c.ID)
	p.must(err)
	p.attempt()
	list, err := p.service.Deliveries(t.Context(), p.tenant.ID, alerts.Filter{})
	p.must(err)
	if mails, _ := p.server.Mails(); len(mails) != 1 || list[0].Status != alerts.Dead || list[1].Status != alerts.Delivered {
		t.Errorf("%d e-mails, %+v", len(mails), list)
	}
}

// Without a mail server, a channel cannot be made, and a waiting message says why it waits.
func TestNoMailServer(t *testing.T) {
	t.Parallel()
	p := newPostOffice(t)
	c := p.mailbox("", "ops@example.org")
	_, err := p.service.Test(t.Context(), "", c.ID)
	p.must(err)
	p.site.send()
	if list := p.deliveries(alerts.Waiting); len(list) != 1 || !strings.Contains(list[0].Answer, "HEADGATE_SMTP_ADDR") {
		t.Errorf("%+v", list)
	}
	bare := alerts.NewService(p.Store, alerts.Config{Now: p.now})
	for _, d := range []alerts.ChannelDocument{{Name: "a", Kind: alerts.Email, URL: "mailto:ops@example.org"}, {Name: "a", Kind: alerts.Email, URL: "ops@example.org"}} {
		if _, err := bare.CreateChannel(t.Context(), "", d); problem.Of(err) != problem.Invalid {
			t.Errorf("%s: %v", d.URL, err)
		}
	}
}
