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

// SenderConfig of a Sender.
type SenderConfig struct {
	Store Store
	// Networks are private networks that webhooks may reach. Default: none.
	Networks []netip.Prefix
	// Every is the interval between two searches for due deliveries. Default 2 s.
	Every time.Duration
	// Mail sends e-mail. nil: this node sends none.
	Mail Mailer
	// Member reports whether a member of a tenant has an e-mail address. A channel of a tenant
	// sends to no other address. Default: nobody has.
	Member func(ctx context.Context, tenantID, address string) (bool, error)
	// Letter returns the e-mail of an invitation, with a new link. The error is
	// problem.NotFound if the invitation has ended.
	Letter func(ctx context.Context, invitationID string) (mail.Message, error)
	// UserAgent is the User-Agent of the requests. Default "Headgate".
	UserAgent string
	// Now returns the time. Default time.Now.
	Now func() time.Time
	// Logger reports deliveries that are given up, and failures of the store. Default: none.
	Logger *slog.Logger
	// Client sends the requests. Default: NewClient(Networks).
	Client *http.Client
}

// A Mailer sends one e-mail. The error wraps mail.ErrRejected if another attempt is of no
// use.
type Mailer interface {
	Send(ctx context.Context, m mail.Message) error
}

const (
	attemptTimeout = 5 * time.Second // of a webhook; a receiver that is slower gets the message again
	claimLife      = time.Minute     // longer than an attempt, by mail also, and the write of its result
	atOnce         = 16              // attempts of a node at the same time
	maxAnswer      = 4 << 10         // bytes of an answer that are read
)

// waits are the longest times from the end of one attempt to the next; a random part of up
// to a tenth is subtracted. Their sum is 24 hours. After the last one, a delivery is given
// up.
var waits = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 10*time.Hour + 17*time.Minute + 25*time.Second,
}

// A Sender posts due deliveries. Every node runs one.
type Sender struct {
	cfg    SenderConfig
	client *http.Client
}

// errPrivate is the error for a receiver whose address is private.
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

// NewClient returns an HTTP client that connects only to public addresses and to those in
// networks. It checks the address of each connection after the name is resolved, so that
// a name cannot lead to another address later. It follows no redirect and uses no proxy.
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

// Run sends until ctx ends.
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

// Send makes one attempt for each delivery that is due, at most 16, and returns their
// number.
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

// A result is what an attempt came to.
type result uint8

const (
	failed  result = iota // another attempt may succeed
	sent                  // the receiver has the message
	refused               // the receiver will never take it
)

// attempt makes one attempt and writes the result. If the node stops meanwhile, another one
// makes the attempt again when the claim ends.
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
		return nil // the claim ends by itself
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
	// An answer is noted even if the node stops, so that the message is not sent again. The store bounds the wait.
	return s.cfg.Store.EndAttempt(context.WithoutCancel(ctx), d.Delivery, now)
}

// post sends the message of a webhook once. answer is the status of the receiver or the error,
// in one line for people.
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
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // so that the connection can be used again
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

// reason returns why a request failed, without the address, whose path can be a secret.
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
