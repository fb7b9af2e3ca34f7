package alerts

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Config configures a Service.
type Config struct {
	// Networks are private networks to which webhooks may be sent. Default: none.
	Networks []netip.Prefix
	// Mail is true if this node can send e-mail. Member is the same function as
	// SenderConfig.Member.
	Mail   bool
	Member func(ctx context.Context, tenantID, address string) (bool, error)
	// Messenger writes test messages.
	Messenger Messenger
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// A Service lets people edit rules and channels, and read incidents and deliveries. Each object
// has an owner: the tenant with the ID tenantID, or the operator if tenantID is "". If an
// object has another owner, the error is problem.NotFound. A Service is safe for concurrent
// use.
type Service struct {
	store Store
	cfg   Config
}

// NewService returns a Service that stores its data in s.
func NewService(s Store, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{s, cfg}
}

// Rules lists the rules of an owner that match f, newest first.
func (s *Service) Rules(ctx context.Context, tenantID string, f Filter) ([]Watched, error) {
	return s.store.Rules(ctx, tenantID, f)
}

// Rule returns one rule of an owner with its state.
func (s *Service) Rule(ctx context.Context, tenantID, id string) (Watched, error) {
	return s.store.Rule(ctx, tenantID, id)
}

// CreateRule adds a rule. Errors: problem.Invalid; problem.Conflict with the code
// too_many_rules.
func (s *Service) CreateRule(ctx context.Context, tenantID string, d Document) (Rule, error) {
	if err := s.validate(ctx, tenantID, &d); err != nil {
		return Rule{}, err
	}
	now := s.instant()
	r := Rule{ID: audit.NewID(), TenantID: tenantID, Version: 1, Document: d, CreatedAt: now, UpdatedAt: now}
	return s.store.CreateRule(ctx, r, entry(ctx, "alert_rule.create", tenantID, r.ID, d.Name, nil, d))
}

// ChangeRule replaces the document of a rule. Errors: problem.Invalid; problem.NotFound;
// problem.Stale if match is not the version of the rule.
func (s *Service) ChangeRule(ctx context.Context, tenantID, id string, match int64, d Document) (Rule, error) {
	before, err := s.store.Rule(ctx, tenantID, id)
	if err != nil {
		return Rule{}, err
	}
	if err := s.validate(ctx, tenantID, &d); err != nil {
		return Rule{}, err
	}
	r := before.Rule
	r.Document, r.UpdatedAt = d, s.instant()
	return s.store.ChangeRule(ctx, r, match, entry(ctx, "alert_rule.change", tenantID, id, d.Name, before.Document, d))
}

// Mute prevents messages about a rule until a time. The zero time ends the muting. The errors
// are those of ChangeRule.
func (s *Service) Mute(ctx context.Context, tenantID, id string, until time.Time) (Rule, error) {
	w, err := s.store.Rule(ctx, tenantID, id)
	if err != nil {
		return Rule{}, err
	}
	d := w.Document
	d.MutedUntil = until.UTC()
	return s.ChangeRule(ctx, tenantID, id, w.Version, d)
}

// DeleteRule removes a rule. It ends the rule's alert without a message.
func (s *Service) DeleteRule(ctx context.Context, tenantID, id string) error {
	r, err := s.store.Rule(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return s.store.DeleteRule(ctx, tenantID, id, entry(ctx, "alert_rule.delete", tenantID, id, r.Name, r.Document, nil))
}

// validate returns the faults of a document. It also checks that the owner has the channels
// that the document names.
func (s *Service) validate(ctx context.Context, tenantID string, d *Document) error {
	var f problem.Fields
	d.validate(&f, tenantID == "")
	if err := f.Err(); err != nil {
		return err
	}
	for i, id := range d.Channels {
		switch _, err := s.store.Channel(ctx, tenantID, id); {
		case problem.Is(err, problem.NotFound):
			f.Add(fmt.Sprintf("/channels/%d", i), "no such channel")
		case err != nil:
			return err
		}
	}
	return f.Err()
}

// Channels lists the channels of an owner that match f, newest first.
func (s *Service) Channels(ctx context.Context, tenantID string, f Filter) ([]Channel, error) {
	return s.store.Channels(ctx, tenantID, f)
}

// Channel returns one channel of an owner.
func (s *Service) Channel(ctx context.Context, tenantID, id string) (Channel, error) {
	return s.store.Channel(ctx, tenantID, id)
}

// CreateChannel adds a channel. The result for a webhook contains the new secret, which is
// shown only now. Errors: problem.Invalid; problem.Conflict with the code too_many_channels.
func (s *Service) CreateChannel(ctx context.Context, tenantID string, d ChannelDocument) (Channel, error) {
	if err := s.validateChannel(ctx, tenantID, &d); err != nil {
		return Channel{}, err
	}
	now := s.instant()
	c := Channel{ID: audit.NewID(), TenantID: tenantID, Version: 1, ChannelDocument: d, CreatedAt: now, UpdatedAt: now}
	if d.Kind == Webhook {
		c.Secret = NewSecret()
	}
	return s.store.CreateChannel(ctx, c, entry(ctx, "alert_channel.create", tenantID, c.ID, d.Name, nil, d.shown()))
}

// ChangeChannel replaces the document of a channel. The kind cannot change. If the URL of d is the
// stored address in the form of HideAddress, the stored address stays. The errors are those of
// ChangeRule.
func (s *Service) ChangeChannel(ctx context.Context, tenantID, id string, match int64, d ChannelDocument) (Channel, error) {
	before, err := s.store.Channel(ctx, tenantID, id)
	if err != nil {
		return Channel{}, err
	}
	if d.URL == HideAddress(before.URL) { // the API shows addresses only in this form
		d.URL = before.URL
	}
	if err := s.validateChannel(ctx, tenantID, &d); err != nil {
		return Channel{}, err
	}
	if d.Kind != before.Kind {
		return Channel{}, problem.At("/kind", "cannot be changed; create another channel")
	}
	c := before
	c.ChannelDocument, c.UpdatedAt = d, s.instant()
	return s.store.ChangeChannel(ctx, c, match, entry(ctx, "alert_channel.change", tenantID, id, d.Name, before.shown(), d.shown()))
}

// SendsMail reports whether this node sends e-mail.
func (s *Service) SendsMail() bool { return s.cfg.Mail }

// validateChannel returns the faults of a document. A channel of a tenant can send e-mail only to
// members of this tenant. Otherwise the tenant could send e-mail to anybody in the name of the
// operator.
func (s *Service) validateChannel(ctx context.Context, tenantID string, d *ChannelDocument) error {
	var f problem.Fields
	d.validate(&f, s.cfg.Networks)
	if err := f.Err(); err != nil || d.Kind != Email {
		return err
	}
	if !s.cfg.Mail {
		return problem.At("/kind", "cannot be email: the operator has not set HEADGATE_SMTP_ADDR")
	}
	if tenantID == "" {
		return nil
	}
	to, _ := d.recipient()
	member := s.cfg.Member != nil
	if member {
		var err error
		if member, err = s.cfg.Member(ctx, tenantID, to); err != nil {
			return err
		}
	}
	if !member {
		return problem.At("/url", "must be the e-mail address of a member of the tenant")
	}
	return nil
}

// formerLife is how long the previous secret still signs messages after a rotation.
const formerLife = 24 * time.Hour

// RotateSecret gives a webhook a new secret, which is shown only now. For 24 hours, the
// previous secret also signs the messages. Errors: problem.NotFound; problem.Conflict for a
// channel without a secret.
func (s *Service) RotateSecret(ctx context.Context, tenantID, id string) (Channel, error) {
	c, err := s.store.Channel(ctx, tenantID, id)
	if err != nil {
		return Channel{}, err
	}
	if c.Kind != Webhook {
		return Channel{}, problem.New(problem.Conflict, "only channels of the kind webhook have a secret")
	}
	now := s.instant()
	c.Former, c.FormerUntil, c.Secret, c.UpdatedAt = c.Secret, now.Add(formerLife), NewSecret(), now
	return s.store.ChangeChannel(ctx, c, c.Version, entry(ctx, "alert_channel.rotate_secret", tenantID, id, c.Name, nil, nil))
}

// DeleteChannel removes a channel and its deliveries. Rules that name the channel stay and skip
// it.
func (s *Service) DeleteChannel(ctx context.Context, tenantID, id string) error {
	c, err := s.store.Channel(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return s.store.DeleteChannel(ctx, tenantID, id, entry(ctx, "alert_channel.delete", tenantID, id, c.Name, c.shown(), nil))
}

// Test queues a test message to a channel and returns the delivery.
func (s *Service) Test(ctx context.Context, tenantID, id string) (Delivery, error) {
	c, err := s.store.Channel(ctx, tenantID, id)
	if err != nil {
		return Delivery{}, err
	}
	now := s.instant()
	i := Incident{Rule: Document{Name: c.Name}}
	d := Delivery{
		ID: audit.NewID(), TenantID: tenantID, ChannelID: id, Event: EventTest, Body: s.cfg.Messenger.Body(c.Kind, EventTest, &i, 0, now),
		CreatedAt: now, DueAt: now, Status: Waiting,
	}
	return d, s.store.QueueDelivery(ctx, d, entry(ctx, "alert_channel.test", tenantID, id, c.Name, nil, nil))
}

// Incidents lists the incidents of an owner that match f, newest first.
func (s *Service) Incidents(ctx context.Context, tenantID string, f Filter) ([]Incident, error) {
	return s.store.Incidents(ctx, tenantID, f)
}

// Incident returns one incident of an owner.
func (s *Service) Incident(ctx context.Context, tenantID, id string) (Incident, error) {
	return s.store.Incident(ctx, tenantID, id)
}

// Delivery returns one delivery of an owner with its attempts, oldest first.
func (s *Service) Delivery(ctx context.Context, tenantID, id string) (Delivery, []Attempt, error) {
	return s.store.Delivery(ctx, tenantID, id)
}

// Deliveries lists the deliveries of an owner that match f, newest first.
func (s *Service) Deliveries(ctx context.Context, tenantID string, f Filter) ([]Delivery, error) {
	return s.store.Deliveries(ctx, tenantID, f)
}

// Repeat makes a delivery due now, so that it is sent again, even if it succeeded or was given
// up.
func (s *Service) Repeat(ctx context.Context, tenantID, id string) (Delivery, error) {
	return s.store.RepeatDelivery(ctx, tenantID, id, s.instant(), entry(ctx, "alert_delivery.repeat", tenantID, id, id, nil, nil))
}

// instant returns the current time, rounded down to milliseconds. Every store can store this
// precision.
func (s *Service) instant() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

func entry(ctx context.Context, action, tenantID, object, name string, before, after any) audit.Entry {
	return audit.Complete(ctx, audit.Entry{TenantID: tenantID, Action: action, Object: object, ObjectName: name}, before, after)
}

// shown returns the document without the path of its address, because that path is a secret of
// Slack and of many receivers.
func (d ChannelDocument) shown() ChannelDocument {
	d.URL = HideAddress(d.URL)
	return d
}
