package alerts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/mail"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/retry"
)

func isNotFound(err error) bool { return problem.Is(err, problem.NotFound) }

// SenderConfig configures a Sender. Store is required.
type SenderConfig struct {
	Store Store
	// Networks are private networks to which webhooks may be sent. Default: none.
	Networks []netip.Prefix
	// Every is the time between two searches for due deliveries. Default: 2 s.
	Every time.Duration
	// Mail sends e-mail. Default: none; attempts to send e-mail then fail.
	Mail Mailer
	// Member reports whether an e-mail address belongs to a member of a tenant. A channel of a
	// tenant sends e-mail only to such addresses. Default: no address belongs to a member.
	Member func(ctx context.Context, tenantID, address string) (bool, error)
	// Letter returns the e-mail for an invitation, with a new link. The error is
	// problem.NotFound if the invitation is used, withdrawn or expired.
	Letter func(ctx context.Context, invitationID string) (mail.Message, error)
	// UserAgent is the User-Agent header of webhook requests. Default: "Headgate".
	UserAgent string
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Logger logs deliveries that are given up. It also logs the first of several consecutive
	// errors of the store, and the first success after them. Default: no logging.
	Logger *slog.Logger
	// Client sends webhook requests. Default: NewClient(Networks).
	Client *http.Client
}

// A Mailer sends one e-mail. The error wraps mail.ErrRejected if the server will never accept
// this e-mail.
type Mailer interface {
	Send(ctx context.Context, m mail.Message) error
}

const (
	attemptTimeout = 5 * time.Second // maximum time of an attempt to send a webhook; a slower receiver gets the message again
	claimLife      = time.Minute     // longer than an attempt, including e-mail, and the write of its result
	atOnce         = 16              // maximum number of attempts of a node at the same time
	maxAnswer      = 4 << 10         // maximum number of bytes of a response that are read
)

// waits are the times from the end of one attempt to the next attempt. Up to a tenth of each time
// is subtracted at random. The sum of the times is 24 hours. If the attempt after the last wait
// fails, the delivery is given up.
var waits = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 10*time.Hour + 17*time.Minute + 25*time.Second,
}

// A Sender sends due deliveries. Every node runs a Sender.
type Sender struct {
	cfg    SenderConfig
	client *http.Client
}

// errPrivate is the error for a webhook address that is private and not allowed.
var errPrivate = errors.New("the address is private; HEADGATE_WEBHOOK_NETWORKS can allow it")

// NewSender returns a Sender.
func NewSender(cfg SenderConfig) *Sender {
	cfg.Every = cmp.Or(cfg.Every, 2*time.Second)
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "Headgate")
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Sender{cfg: cfg, client: cfg.Client}
	if s.client == nil {
		s.client = NewClient(cfg.Networks)
	}
	return s
}

// NewClient returns an HTTP client that connects only to public addresses and to those in networks.
// It checks the IP address of each connection after the host name is resolved. Therefore the client
// rejects a name even if the name resolves to a private address only later. The client follows no
// redirects and uses no proxy.
func NewClient(networks []netip.Prefix) *http.Client {
	dialer := &net.Dialer{
		Timeout: 5 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil || !reachable(at.Addr(), networks) {
				return errPrivate
			}
			return nil
		},
	}
	return &http.Client{
		Timeout: attemptTimeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: attemptTimeout,
			MaxResponseHeaderBytes: 16 << 10, MaxIdleConns: 2 * atOnce, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Run sends due deliveries until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		n, err := s.Send(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && !failing:
			s.cfg.Logger.Warn("alert messages are not sent; trying again", "error", err)
		case err == nil && failing:
			s.cfg.Logger.Info("alert messages are sent again")
		}
		failing = err != nil
		if n < atOnce {
			_ = retry.Wait(ctx, retry.Jitter(s.cfg.Every))
		}
	}
	return nil
}

// Send makes one attempt for each delivery that is due, for at most 16 deliveries. It returns the
// number of attempts.
func (s *Sender) Send(ctx context.Context) (int, error) {
	now := s.now()
	list, err := s.cfg.Store.ClaimDeliveries(ctx, now, now.Add(claimLife), atOnce)
	if err != nil {
		return 0, err
	}
	errs := make([]error, len(list))
	var group sync.WaitGroup
	for i := range list {
		group.Go(func() { errs[i] = s.attempt(ctx, &list[i]) })
	}
	group.Wait()
	return len(list), errors.Join(errs...)
}

func (s *Sender) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// A result says how an attempt ended.
type result uint8

const (
	failed  result = iota // the message was not accepted; another attempt may succeed
	sent                  // the receiver has accepted the message
	refused               // the receiver will never accept the message
)

// attempt makes one attempt to send d and stores the result. If the node stops before the
// result is stored, another node makes an attempt when the claim ends.
func (s *Sender) attempt(ctx context.Context, d *Due) error {
	var r result
	switch {
	case d.InvitationID != "":
		r, d.Answer = s.mailInvitation(ctx, d)
	case d.Channel.Kind == Email:
		r, d.Answer = s.mailAlert(ctx, d)
	default:
		r, d.Answer = s.post(ctx, d)
	}
	if stops := ctx.Err() != nil; stops && r == failed {
		return nil // when the claim ends, the delivery is due again
	}
	now := s.now()
	switch {
	case r == sent:
		d.Status, d.EndAt, d.DueAt = Delivered, now, time.Time{}
	case r == refused || d.Attempts > len(waits):
		d.Status, d.EndAt, d.DueAt = Dead, now, time.Time{}
		s.cfg.Logger.Warn("an alert message is given up", "delivery", d.ID, "channel", d.Channel.Name, "attempts", d.Attempts, "answer", d.Answer)
	default:
		wait := waits[d.Attempts-1]
		d.DueAt = now.Add(wait - rand.N(wait/10)).Truncate(time.Millisecond)
	}
	// The result is stored even if ctx has ended. Otherwise the message would be sent again. The
	// store has its own timeout.
	return s.cfg.Store.EndAttempt(context.WithoutCancel(ctx), d.Delivery, now)
}

// post tries once to send the message of a webhook. answer is the status of the response or the
// error, in one line for people.
func (s *Sender) post(ctx context.Context, d *Due) (_ result, answer string) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Channel.URL, bytes.NewReader(d.Body))
	if err != nil {
		return failed, "the address cannot be used"
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", s.cfg.UserAgent)
	if d.Channel.Kind == Webhook {
		now := s.now()
		secrets := []string{d.Channel.Secret}
		if now.Before(d.Channel.FormerUntil) {
			secrets = append(secrets, d.Channel.Former)
		}
		r.Header.Set("webhook-id", d.ID)
		r.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		r.Header.Set("webhook-signature", Sign(d.ID, now, d.Body, secrets...))
	}
	response, err := s.client.Do(r)
	if err != nil {
		return failed, reason(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // reads the rest, so that the connection can be used again
	answer = fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch {
	case response.StatusCode/100 == 2:
		return sent, answer
	case response.StatusCode == http.StatusGone:
		return refused, answer
	case response.StatusCode/100 == 3:
		answer += " (redirects are not followed)"
	}
	return failed, answer
}

// reason says why a request failed. The text does not contain the address, whose path can be a
// secret.
func reason(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, errPrivate):
		return errPrivate.Error()
	case errors.As(err, &dns):
		return "the name cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %.0f s", attemptTimeout.Seconds())
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return "the request failed: " + err.Error()
}
