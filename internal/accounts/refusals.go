package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// RefusalsConfig of a Refusals.
type RefusalsConfig struct {
	// Interval is how long equal refusals are joined into one line. Default: one minute.
	Interval time.Duration
	// Most is how many different ones are kept until they are written; the rest
	// become a line of their own, with their number. Default: 1,000.
	Most int
	// StopTimeout is how long the last writing may take. Default: 5 s.
	StopTimeout time.Duration
	// Logger hears of lines that could not be written. Default: none.
	Logger *slog.Logger
}

// Refusals notes accesses that were refused to somebody who is known, and
// writes them into the audit log. Whoever asks a thousand times gets one line
// with a count, and nobody waits for a store. It is safe for concurrent use.
type Refusals struct {
	store PeopleStore
	cfg   RefusalsConfig

	mu    sync.Mutex
	noted map[refusal]*refusals
	named map[refusal]int // how many tenants are noted of a refusal, told without one
}

// namedTenants is how many tenants are told apart of what somebody was refused
// at one route; what names more is joined without a name. So nobody fills the
// log, or the place of others, by naming ever new ones.
const namedTenants = 10

// A refusal is what is told apart.
type refusal struct {
	kind, id string // of who was refused
	action   Action
	route    string
	tenant   string
}

// beyondMost stands for all that found no room.
var beyondMost = refusal{}

// refusals of one kind are joined.
type refusals struct {
	who    Principal
	origin audit.Origin // of the first
	count  int
}

// auditRefusal is a refused access in the audit log.
type auditRefusal struct {
	Action Action `json:"action,omitempty"`
	Route  string `json:"route,omitempty"`
	Tenant string `json:"tenant,omitempty"` // as it was named
	Count  int    `json:"count"`
}

// NewRefusals makes a Refusals; Run writes what it notes.
func NewRefusals(store PeopleStore, cfg RefusalsConfig) *Refusals {
	if cfg.Interval <= 0 {
		cfg.Interval = time.Minute
	}
	if cfg.Most <= 0 {
		cfg.Most = 1000
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = 5 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Refusals{store: store, cfg: cfg}
	r.take()
	return r
}

// take gives what is noted and begins anew.
func (r *Refusals) take() map[refusal]*refusals {
	noted := r.noted
	r.noted, r.named = map[refusal]*refusals{}, map[refusal]int{}
	return noted
}

// Note notes that somebody was refused an action at a route, and which tenant
// they named there ("" for none). It touches memory only. ctx gives the origin
// (audit.With), which the line has of the first of its kind. Nobody is not noted.
func (r *Refusals) Note(ctx context.Context, who Principal, action Action, route, tenant string) {
	if who.Kind == "" {
		return
	}
	_, origin := audit.Who(ctx)
	r.add(refusal{kind: who.Kind, id: who.ID, action: action, route: route, tenant: audit.Clean(tenant)}, refusals{who: who, origin: origin, count: 1})
}

func (r *Refusals) add(what refusal, more refusals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.cfg.Most
	if _, crowded := r.noted[beyondMost]; crowded {
		room++ // it takes nobody's place
	}
	here, known := r.noted[what]
	nameless := what
	nameless.tenant = ""
	if !known && r.named[nameless] >= namedTenants {
		what = nameless
		here, known = r.noted[what]
	}
	if !known && what != beyondMost && len(r.noted) >= room {
		what = beyondMost
		here, known = r.noted[what]
		more.who, more.origin = Principal{Kind: "system", ID: "system", Name: "system"}, audit.Origin{}
	}
	if known {
		here.count += more.count
		return
	}
	r.noted[what] = &more
	if what.tenant != "" {
		r.named[nameless]++
	}
}

// Run writes every interval until ctx ends, and then what is left.
func (r *Refusals) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.StopTimeout)
			defer cancel()
			if err := r.Flush(last); err != nil {
				r.cfg.Logger.Error("refused accesses are not in the audit log: they could not be written before the end", "error", err)
			}
			return nil
		case <-tick.C:
			if err := r.Flush(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Logger.Warn("refused accesses wait for the audit log", "error", err)
			}
		}
	}
}

// Flush writes what was noted until now, a line for each kind. What it cannot
// write it keeps for the next time.
func (r *Refusals) Flush(ctx context.Context) error {
	r.mu.Lock()
	noted := r.take()
	r.mu.Unlock()
	for what, some := range maps.Clone(noted) {
		if err := r.write(ctx, what, some); err != nil {
			for what, some := range noted {
				r.add(what, *some)
			}
			return err
		}
		delete(noted, what)
	}
	return nil
}

func (r *Refusals) write(ctx context.Context, what refusal, some *refusals) error {
	e := audit.Entry{
		Actor: audit.Actor{Kind: some.who.Kind, ID: some.who.ID, Name: some.who.Name}, Origin: some.origin,
		TenantID: some.who.TenantID, Action: "access.refused", Object: string(what.action), ObjectName: audit.Clean(what.route),
	}
	var err error
	e.After, err = json.Marshal(auditRefusal{Action: what.action, Route: audit.Clean(what.route), Tenant: what.tenant, Count: some.count})
	if err != nil {
		return fmt.Errorf("describe a refused access for the audit log: %w", err)
	}
	return r.store.WriteAudit(ctx, e)
}
