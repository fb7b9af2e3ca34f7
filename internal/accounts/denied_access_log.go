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
	"github.com/headgate/headgate/internal/retry"
)

// DeniedAccessConfig configures a DeniedAccessLog.
type DeniedAccessConfig struct {
	// Interval is the time between two writes. All equal denied accesses in an interval become one
	// audit line. Default: one minute.
	Interval time.Duration
	// Most is the maximum number of different denied accesses that are recorded in an interval. All
	// further ones in the interval share one audit line with their number. Default: 1,000.
	Most int
	// StopTimeout is the maximum duration of the last write, when the process stops. Default: 5 s.
	StopTimeout time.Duration
	// Logger logs an error if denied accesses cannot be written. Default: no logging.
	Logger *slog.Logger
}

// A DeniedAccessLog writes denied accesses to the audit log. A denied access is a request for an
// action that the caller's role or scope does not allow. The log collects them in memory and writes
// them at intervals. Equal denied accesses become one audit line with a count. A DeniedAccessLog is
// safe for concurrent use.
type DeniedAccessLog struct {
	store PeopleStore
	cfg   DeniedAccessConfig

	mu    sync.Mutex
	noted map[deniedAccess]*deniedCount
	named map[deniedAccess]int // number of different tenants in noted; each key has the tenant ""
}

// namedTenants is the maximum number of different tenants in the audit lines of one interval for
// one caller, action and route. Denied accesses to further tenants share a line that names no
// tenant. Without this maximum, a caller could cause any number of lines by sending random tenant
// IDs.
const namedTenants = 10

// A deniedAccess identifies equal denied accesses. Two denied accesses are equal if all these
// fields are equal.
type deniedAccess struct {
	kind, id string // kind and ID of the denied caller
	action   Action
	route    string
	tenant   string
}

// beyondMost is the entry for all denied accesses of an interval after the first
// DeniedAccessConfig.Most different ones.
var beyondMost = deniedAccess{}

// A deniedCount counts equal denied accesses.
type deniedCount struct {
	who    Principal
	origin audit.Origin // the origin of the first of these equal requests
	count  int
}

// auditDeniedAccess is the JSON form of equal denied accesses in an audit line.
type auditDeniedAccess struct {
	Action Action `json:"action,omitempty"`
	Route  string `json:"route,omitempty"`
	Tenant string `json:"tenant,omitempty"` // the tenant that the request named; it may not exist
	Count  int    `json:"count"`
}

// NewDeniedAccessLog returns an empty DeniedAccessLog. It writes nothing until Run or Flush is
// called.
func NewDeniedAccessLog(store PeopleStore, cfg DeniedAccessConfig) *DeniedAccessLog {
	cfg.Interval = cmp.Or(cfg.Interval, time.Minute)
	cfg.Most = cmp.Or(cfg.Most, 1000)
	cfg.StopTimeout = cmp.Or(cfg.StopTimeout, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &DeniedAccessLog{store: store, cfg: cfg}
	r.take()
	return r
}

// take returns the collected denied accesses and starts a new collection. The caller must hold mu.
func (r *DeniedAccessLog) take() map[deniedAccess]*deniedCount {
	noted := r.noted
	r.noted, r.named = map[deniedAccess]*deniedCount{}, map[deniedAccess]int{}
	return noted
}

// Note records that who was denied the action at a route. tenant is the tenant that the request
// named, or "". Equal requests share an audit line, which contains the origin of the first request.
// The origin comes from ctx (see audit.With). Note writes only to memory and never waits for the
// store. It ignores anonymous callers.
func (r *DeniedAccessLog) Note(ctx context.Context, who Principal, action Action, route, tenant string) {
	if who.Kind == "" {
		return
	}
	_, origin := audit.Who(ctx)
	r.add(deniedAccess{kind: who.Kind, id: who.ID, action: action, route: route, tenant: audit.Clean(tenant)}, deniedCount{
		who: who, origin: origin,
		count: 1,
	})
}

func (r *DeniedAccessLog) add(what deniedAccess, more deniedCount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.cfg.Most
	if _, crowded := r.noted[beyondMost]; crowded {
		room++ // the entry beyondMost does not count toward Most
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

// Run calls Flush at each interval until ctx ends. Then it calls Flush once more and returns.
func (r *DeniedAccessLog) Run(ctx context.Context) error {
	for retry.Wait(ctx, r.cfg.Interval) == nil {
		if err := r.Flush(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("denied accesses could not be written to the audit log; the next write includes them", "error", err)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.StopTimeout)
	defer cancel()
	if err := r.Flush(last); err != nil {
		r.cfg.Logger.Error("denied accesses could not be written to the audit log before the shutdown", "error", err)
	}
	return nil
}

// Flush writes the collected denied accesses to the audit log, one line for all equal ones. If a
// write fails, Flush keeps the unwritten denied accesses for the next call and returns the error.
func (r *DeniedAccessLog) Flush(ctx context.Context) error {
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

func (r *DeniedAccessLog) write(ctx context.Context, what deniedAccess, some *deniedCount) error {
	e := audit.Entry{
		Actor: audit.Actor{Kind: some.who.Kind, ID: some.who.ID, Name: some.who.Name}, Origin: some.origin,
		TenantID: some.who.TenantID, Action: "access.refused", Object: string(what.action), ObjectName: audit.Clean(what.route),
	}
	var err error
	e.After, err = json.Marshal(auditDeniedAccess{Action: what.action, Route: audit.Clean(what.route), Tenant: what.tenant, Count: some.count})
	if err != nil {
		return fmt.Errorf("encode a denied access for the audit log: %w", err)
	}
	return r.store.WriteAudit(ctx, e)
}
