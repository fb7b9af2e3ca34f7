package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// The maximum numbers of failed sign-ins and of wrong codes within a FailureWindow.
const (
	FailuresPerAccount = 5
	FailuresPerAddress = 20 // an IPv6 address counts as its /64 network
	FailuresPerBrowser = 5  // for one user in one browser in which the user has signed in before
	FailureWindow      = 15 * time.Minute
	WrongCodes         = 5 // wrong codes within a FailureWindow, for an account, or for one browser in which its user has signed in before
	WrongCodesADay     = 20
)

// The maximum numbers of e-mailed links within a mailWindow, so that nobody can flood a mailbox
// with e-mails of this server.
const (
	mailsPerAddress = 3
	mailsPerParty   = 60 // from one tenant, or from the operator
	mailWindow      = time.Hour
)

// A LimitedError means that too many sign-ins to this account or from this address have failed. An
// account that does not exist causes the same error.
type LimitedError struct {
	// RetryAfter is the time until the next attempt is allowed; at least 1 ms.
	RetryAfter time.Duration
}

// Error returns the message for people.
func (e *LimitedError) Error() string {
	return fmt.Sprintf("too many sign-ins have failed: try again in %v", e.RetryAfter.Round(time.Second))
}

// A signInLimit counts failed sign-ins in the limiter that also decides the tenants' checks, so that all nodes share
// the counters. The counters use the tenant number 0, which no tenant has.
type signInLimit struct {
	engine  *enforcement.Engine
	limiter enforcement.Limiter
	local   enforcement.Limiter
	subject *enforcement.Subject // the limits for a browser that has sent no valid value of RememberBrowser
	known   *enforcement.Subject
	mails   *enforcement.Subject
	codes   *enforcement.Subject
}

// The attributes by which failed sign-ins, wrong codes and e-mailed links are counted.
const (
	byAccount = "account"
	byAddress = enforcement.IPNetwork
	byBrowser = "browser"
	byParty   = "party"
)

func newSignInLimit(cfg PeopleConfig) (*signInLimit, error) {
	rule := func(name, by string, quota int64, window time.Duration, cell uint32) enforcement.RuleSpec {
		l := enforcement.Limit{Name: "l1", Algorithm: enforcement.SlidingWindowLog, Quota: quota, Window: window}
		return enforcement.RuleSpec{
			Policy: name, CountBy: []string{by}, OnFailure: enforcement.OnFailureLocal,
			Limits: []enforcement.RuleLimit{{Limit: l, Cell: cell, Meter: l.Compile(1)}},
		}
	}
	var faults [4]error
	subject := func(i int, rules ...enforcement.RuleSpec) *enforcement.Subject {
		var plan *enforcement.Plan
		plan, faults[i] = enforcement.CompilePlan("sign-in", 1, rules)
		return &enforcement.Subject{Tenant: "sign-in", Home: "sign-in", PlanRevision: 1, Plan: plan}
	}
	unknown := subject(0,
		rule("failures-per-account", byAccount, FailuresPerAccount, FailureWindow, 1),
		rule("failures-per-address", byAddress, FailuresPerAddress, FailureWindow, 2))
	known := subject(1, rule("failures-per-browser", byBrowser, FailuresPerBrowser, FailureWindow, 3))
	mails := subject(2,
		rule("mails-per-address", byAccount, mailsPerAddress, mailWindow, 4),
		rule("mails-per-party", byParty, mailsPerParty, mailWindow, 5))
	codes := subject(3,
		rule("wrong-codes", byAccount, WrongCodes, FailureWindow, 6),
		rule("wrong-codes-a-day", byAccount, WrongCodesADay, 24*time.Hour, 7))
	if err := errors.Join(faults[:]...); err != nil {
		return nil, fmt.Errorf("compile the limits of signing in: %w", err)
	}
	return &signInLimit{
		engine: enforcement.NewEngine(cfg.Limiter, enforcement.Config{
			Local: cfg.Local, Now: cfg.Now, Logger: cfg.Logger,
		}),
		limiter: cfg.Limiter,
		local:   cfg.Local,
		subject: unknown,
		known:   known,
		mails:   mails,
		codes:   codes,
	}, nil
}

// An attempt contains the charges for one failed sign-in or one wrong code. They are made before
// the password or the code is verified.
type attempt struct {
	limit    *signInLimit
	decision enforcement.Decision
}

// charge charges one failed sign-in to an account (in the form of FoldEmail) and to an IP
// address. It runs before the password is verified, so that concurrent attempts are counted
// too. The error is *LimitedError, or problem.Unavailable if no limiter is available.
func (l *signInLimit) charge(ctx context.Context, account, address string) (*attempt, error) {
	check := &enforcement.Check{Cost: 1, Attributes: []enforcement.Attribute{{Name: byAccount, Value: account}}}
	if ip, canonical, err := enforcement.CanonicalIP(address); err == nil {
		check.IP = ip
		check.Attributes = append(check.Attributes, enforcement.Attribute{Name: "ip", Value: canonical})
	}
	return l.take(ctx, l.subject, check)
}

// chargeBrowser is like charge, for a browser in which the user has signed in before. It
// charges only the counter of that browser.
func (l *signInLimit) chargeBrowser(ctx context.Context, nonce, userID string) (*attempt, error) {
	return l.take(ctx, l.known, &enforcement.Check{
		Cost: 1, Attributes: []enforcement.Attribute{{Name: byBrowser, Value: nonce + " " + userID}},
	})
}

// chargeCode charges one wrong code to the counter with this name. It runs before the code is
// verified.
func (l *signInLimit) chargeCode(ctx context.Context, counter string) (*attempt, error) {
	return l.take(ctx, l.codes, &enforcement.Check{Cost: 1, Attributes: []enforcement.Attribute{{Name: byAccount, Value: counter}}})
}

// chargeMail charges one e-mailed link to two counters: that of the recipient and that of the
// sender. The sender is the tenant, or the operator if tenantID is "". The error is
// problem.Conflict with the code too_many_mails, or problem.Unavailable if no limiter is available.
func (l *signInLimit) chargeMail(ctx context.Context, recipient, tenantID string) error {
	_, err := l.take(ctx, l.mails, &enforcement.Check{Cost: 1, Attributes: []enforcement.Attribute{
		{Name: byAccount, Value: FoldEmail(recipient)}, {Name: byParty, Value: cmp.Or(tenantID, "operator")},
	}})
	if limited := (*LimitedError)(nil); errors.As(err, &limited) {
		return problem.WithCode(problem.Conflict, "too_many_mails",
			"too many links were e-mailed: try again in %v, or send the link yourself", limited.RetryAfter.Round(time.Second))
	}
	return err
}

func (l *signInLimit) take(ctx context.Context, subject *enforcement.Subject, check *enforcement.Check) (*attempt, error) {
	a := &attempt{limit: l}
	l.engine.Decide(ctx, subject, check, &a.decision)
	switch d := &a.decision; {
	case d.Allowed:
		return a, nil
	case d.Reason == enforcement.ReasonLimiterUnavailable:
		return nil, problem.New(problem.Unavailable, "sign-ins cannot be counted at the moment: try again soon")
	default:
		return nil, &LimitedError{RetryAfter: time.Duration(max(d.RetryAfter, 1)) * time.Millisecond}
	}
}

// refund gives back what the attempt to sign in charged, because the attempt did not fail. If the refund itself
// fails, the charge counts until the window of the limit ends.
func (a *attempt) refund(ctx context.Context) {
	limiter := a.limit.limiter
	if a.decision.Degraded {
		limiter = a.limit.local
	}
	request := enforcement.Request{ID: a.decision.ID, Mode: enforcement.Refund, Home: a.limit.subject.Home}
	for _, s := range a.decision.Limits {
		request.Charges = append(request.Charges, enforcement.Charge{
			Key:   enforcement.Key{Tenant: a.limit.subject.Number, Cell: s.Limit.Cell, Partition: s.Partition},
			Meter: s.Limit.Meter, Rev: s.Limit.Meter.Rev, Cost: s.Cost,
		})
	}
	limiter.Take(context.WithoutCancel(ctx), []enforcement.Request{request}, make([]enforcement.Outcome, 1))
}
