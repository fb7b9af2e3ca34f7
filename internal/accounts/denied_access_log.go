package accounts

import (
	"cmp"
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
	// Interval is the time within which equal denials share one line. Default:
	// one minute.
	Interval time.Duration
	// Most is the maximum number of different denials between two writes. All
	// further denials share one line that has their number. Default: 1,000.
	Most int
	// StopTimeout bounds the last write. Default: 5 s.
	StopTimeout time.Duration
	// Logger reports lines that could not be written. Default: none.
	Logger *slog.Logger
}

// Refusals records accesses that were denied to a key or a person, and writes
// them to the audit log. A thousand equal denials become one line with a count.
// Note does not wait for a store. Refusals is safe for concurrent use.
type Refusals struct {
	store PeopleStore
	cfg   RefusalsConfig

	mu    sync.Mutex
	noted map[refusal]*refusals
	named map[refusal]int // how many tenants are noted of a refusal, told without one
}

// namedTenants is the maximum number of tenants that lines name for one caller
// at one route. Further tenants share a line without a name. This bounds what
// one caller can write to the log by naming random tenants.
const namedTenants = 10

// A refusal is the key by which denials are grouped.
type refusal struct {
	kind, id string // of who was refused
	action   Action
	route    string
	tenant   string
}

// beyondMost is the key of all denials beyond Most.
var beyondMost = refusal{}

// refusals counts the denials with one key.
type refusals struct {
	who    Principal
	origin audit.Origin // of the first
	count  int
}

// auditRefusal is a denied access in the audit log.
type auditRefusal struct {
	Action Action `json:"action,omitempty"`
	Route  string `json:"route,omitempty"`
	Tenant string `json:"tenant,omitempty"` // as it was named
	Count  int    `json:"count"`
}

// NewRefusals returns a Refusals. Run writes what it records.
func NewRefusals(store PeopleStore, cfg RefusalsConfig) *Refusals {
	cfg.Interval = cmp.Or(cfg.Interval, time.Minute)
	cfg.Most = cmp.Or(cfg.Most, 1000)
	cfg.StopTimeout = cmp.Or(cfg.StopTimeout, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Refusals{store: store, cfg: cfg}
	r.take()
	return r
}

// take returns the recorded denials and resets the record.
func (r *Refusals) take() map[refusal]*refusals {
	noted := r.noted
	r.noted, r.named = map[refusal]*refusals{}, map[refusal]int{}
	return noted
}

// Note records that who was denied an action at a route. tenant is the tenant
// that the request named, or "". ctx has the origin (see audit.With); a line
// shows the origin of its first denial. Note only touches memory. It ignores
// requests without a principal.
func (r *Refusals) Note(ctx context.Context, who Principal, action Action, route, tenant string) {
	if who.Kind == "" {
		return
	}
	_, origin := audit.Who(ctx)
	r.add(refusal{kind: who.Kind, id: who.ID, action: action, route: route, tenant: audit.Clean(tenant)}, refusals{
		who: who, origin: origin,
		count: 1,
	})
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

// Run writes the record every interval until ctx ends, and once more at the
// end.
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

// Flush writes the record, one line for each key. It keeps what it could not
// write for the next call.
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
