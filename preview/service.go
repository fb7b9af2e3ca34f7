package preview

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/audit"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/metrics"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/steering"
	"github.com/headgate/headgate/tenants"
)

// Config of a Service; Plans, Tenants, Steering, Analytics and Audit are needed.
type Config struct {
	Plans     *plans.Service
	Tenants   *tenants.Service
	Steering  *steering.Service
	Analytics *metrics.Analytics
	// Audit reads the audit log: since when a version is published.
	Audit func(ctx context.Context, f audit.Filter) ([]audit.Entry, error)
	// Subject finds a tenant by its number as this node has it compiled, to pass
	// by those that have no override. Default: every tenant is asked for them.
	Subject func(number uint32) (*enforcement.Subject, bool)
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger hears of what could not be read. Default: silent.
	Logger *slog.Logger
}

// A Service answers what drafts would do. It is safe for concurrent use.
type Service struct{ c Config }

// NewService makes a Service.
func NewService(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{c}
}

// Draft holds the draft of a plan against what its tenants did in [from, to),
// widened to whole minutes. Zero from or to mean the last DefaultSpan. Invalid
// (at from or to) when that is empty or longer than MaxSpan; NotFound.
func (s *Service) Draft(ctx context.Context, plan string, from, to time.Time) (Preview, error) {
	r, err := s.begin(ctx, plan, from, to)
	if err != nil {
		return Preview{}, err
	}
	return r.preview, nil
}

// A run makes one answer.
type run struct {
	preview Preview
}

// begin reads the plan and settles the span.
func (s *Service) begin(ctx context.Context, idOrSlug string, from, to time.Time) (*run, error) {
	from, to, err := s.span(from, to)
	if err != nil {
		return nil, err
	}
	p, err := s.c.Plans.Plan(ctx, idOrSlug)
	if err != nil {
		return nil, err
	}
	return &run{preview: Preview{Plan: p, Published: p.Published, From: from, To: to}}, nil
}

// span fills in what is not given and widens it to whole minutes.
func (s *Service) span(from, to time.Time) (time.Time, time.Time, error) {
	if to.IsZero() {
		to = s.c.Now()
	}
	if from.IsZero() {
		from = to.Add(-DefaultSpan)
	}
	from = from.UTC().Truncate(time.Minute)
	if whole := to.UTC().Truncate(time.Minute); whole.Before(to) {
		to = whole.Add(time.Minute)
	}
	to = to.UTC()
	switch {
	case !to.After(from):
		return from, to, problem.At("to", "must be after from")
	case to.Sub(from) > MaxSpan+time.Minute:
		return from, to, problem.At("from", "must be at most 7 days before to")
	}
	return from, to, nil
}
