package alerts

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/headgate/headgate/internal/mail"
)

// noMail is the stored result of an attempt on a node that cannot send e-mail.
const noMail = "this node sends no e-mail: HEADGATE_SMTP_ADDR is not set"

// mailAlert tries once to send the message of a channel of the kind Email. answer describes the
// result of the attempt.
func (s *Sender) mailAlert(ctx context.Context, d *Due) (_ result, answer string) {
	to, ok := d.Channel.recipient()
	var l letter
	if !ok || json.Unmarshal(d.Body, &l) != nil {
		return refused, "the channel has no e-mail address"
	}
	if d.TenantID != "" {
		switch member, err := s.member(ctx, d.TenantID, to); {
		case err != nil:
			return failed, "the members of the tenant are not known: the database does not answer"
		case !member:
			return refused, to + " is no longer a member of the tenant"
		}
	}
	return s.send(ctx, mail.Message{ID: d.ID, To: to, Subject: l.Subject, Text: l.Text})
}

func (s *Sender) member(ctx context.Context, tenantID, address string) (bool, error) {
	if s.cfg.Member == nil {
		return false, nil
	}
	return s.cfg.Member(ctx, tenantID, address)
}

// mailInvitation tries once to send the e-mail with the link of an invitation.
func (s *Sender) mailInvitation(ctx context.Context, d *Due) (_ result, answer string) {
	if s.cfg.Mail == nil || s.cfg.Letter == nil {
		return failed, noMail
	}
	m, err := s.cfg.Letter(ctx, d.InvitationID)
	switch {
	case isNotFound(err):
		return refused, "the invitation is used, withdrawn or expired"
	case err != nil:
		return failed, "the link cannot be made: the database does not answer"
	}
	m.ID = d.ID
	return s.send(ctx, m)
}

func (s *Sender) send(ctx context.Context, m mail.Message) (_ result, answer string) {
	if s.cfg.Mail == nil {
		return failed, noMail
	}
	switch err := s.cfg.Mail.Send(ctx, m); {
	case err == nil:
		return sent, "accepted by the mail server"
	case errors.Is(err, mail.ErrRejected):
		return refused, mail.Answer(err)
	default:
		return failed, mail.Answer(err)
	}
}
