package snapshot

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/cow"
	"github.com/headgate/headgate/tenants"
)

// A Snapshot contains all tenants, keys and plans of one revision, compiled for lookups. It is immutable.
type Snapshot struct {
	revision int64
	now      func() time.Time
	// generation is the number of the snapshot. Only records with this generation may be changed while it is built.
	generation uint64

	keys    cow.Map[[32]byte, *Key]  // by the hash of the token; includes keys of unusable tenants
	keyIDs  cow.Map[string, keyRef]  // by id
	tenants cow.Map[string, *tenant] // by id
	slugs   cow.Map[string, string]  // slugs of usable tenants to their IDs
	numbers cow.Map[uint32, string]  // numbers of usable tenants to their IDs
	rows    cow.Map[object, rowRef]  // places of overrides, list entries and blocks
	plans   map[string]*plan         // by id
	faults  map[object]Problem       // objects that cannot be used
	// operators are the operator keys by ID. operatorUntil is when the last valid one ends, in microseconds since the
	// epoch.
	operators     map[string]*Key
	operatorUntil int64
	// size is the number of exceptions. ends contains the earliest end in each chunk of rows (0: none), and nextEnd
	// the earliest of all, in microseconds since the epoch.
	size    exceptionCounts
	ends    []int64
	nextEnd int64
	// planless is the number of usable tenants without a plan.
	planless int
}

// Scopes is a set of tenants.Scope values, as bits.
type Scopes uint8

const (
	scopeCheck Scopes = 1 << iota
	scopeRead
	scopeManage
)

// ScopesOf returns the set of some scopes. The scope manage includes read. ok is false if a scope is unknown; an
// unknown scope grants nothing.
func ScopesOf(words []tenants.Scope) (set Scopes, ok bool) {
	ok = true
	for _, w := range words {
		switch w {
		case tenants.ScopeCheck:
			set |= scopeCheck
		case tenants.ScopeRead:
			set |= scopeRead
		case tenants.ScopeManage:
			set |= scopeManage | scopeRead
		default:
			ok = false
		}
	}
	return set, ok
}

// Has reports whether a scope is in the set.
func (s Scopes) Has(scope tenants.Scope) bool {
	one, ok := ScopesOf([]tenants.Scope{scope})
	return ok && s&one == one
}

// A Key is an API key, compiled for authentication.
type Key struct {
	ID       string
	Name     string
	Operator bool
	Scopes   Scopes
	// ExpiresAt and RevokedAt are in microseconds since the epoch; 0 means never. If RevokedAt is in the future, the
	// key was rotated and is valid until then.
	ExpiresAt int64
	RevokedAt int64
	// Bounds restrict the checks that the key may send.
	Bounds tenants.Bounds
	// AllowedIPs are the addresses from which the key may be used; empty: all.
	AllowedIPs tenants.Networks
	// Subject is the tenant of the key; nil for an operator key.
	Subject *enforcement.Subject
	// used is when the key last authenticated a request on this node, in milliseconds since the epoch; 0 means never.
	// All snapshots share it. It is nil for a key that is not stored.
	used *atomic.Int64
}

// Valid reports whether the key is neither expired nor revoked at an instant, in microseconds since the epoch.
func (k *Key) Valid(nowMicros int64) bool { return nowMicros < k.until() }

// until returns the end of the key in microseconds since the epoch.
func (k *Key) until() int64 {
	until := int64(math.MaxInt64)
	if k.ExpiresAt != 0 {
		until = k.ExpiresAt
	}
	if k.RevokedAt != 0 {
		until = min(until, k.RevokedAt)
	}
	return until
}

// Key returns a key by the SHA-256 of its token. It also returns expired and revoked keys; Valid tells them apart.
func (s *Snapshot) Key(hash [32]byte) (*Key, bool) {
	k, ok := s.keys.Get(hash)
	if !ok || k.Subject == nil && !k.Operator {
		return nil, false
	}
	return k, true
}

// Subject returns a usable tenant by its ID or slug.
func (s *Snapshot) Subject(idOrSlug string) (*enforcement.Subject, bool) {
	id, ok := s.slugs.Get(idOrSlug)
	if !ok {
		id = idOrSlug
	}
	t, ok := s.tenants.Get(id)
	if !ok || t.subject == nil {
		return nil, false
	}
	return t.subject, true
}

// SubjectByNumber returns a usable tenant by its number.
func (s *Snapshot) SubjectByNumber(number uint32) (*enforcement.Subject, bool) {
	id, ok := s.numbers.Get(number)
	if !ok {
		return nil, false
	}
	t, ok := s.tenants.Get(id)
	if !ok || t.subject == nil {
		return nil, false
	}
	return t.subject, true
}

// Revision returns the revision of the rows that the snapshot was compiled from.
func (s *Snapshot) Revision() int64 { return s.revision }

// HasOperatorKey reports whether a valid operator key exists now. The bootstrap key is valid only while there is
// none.
func (s *Snapshot) HasOperatorKey() bool { return s.now().UnixMicro() < s.operatorUntil }

// Counts are the numbers of usable objects.
type Counts struct {
	Plans    int // plans that have a usable version
	Policies int // policies of these plans
	Tenants  int // usable tenants
	Planless int // usable tenants without a plan
	Keys     int // keys of tenants and of the operator, including ended ones
	// Exceptions, including expired ones and those of a policy that the plan does not have.
	Overrides, Entries, Blocks int
}

// Counts returns the numbers of usable objects.
func (s *Snapshot) Counts() Counts {
	c := Counts{
		Tenants: s.numbers.Len(), Keys: s.keys.Len(), Planless: s.planless,
		Overrides: s.size.rows[amongOverrides],
		Entries:   s.size.rows[amongDenied] + s.size.rows[amongAllowed],
		Blocks:    s.size.rows[amongBlocks],
	}
	for _, p := range s.plans {
		if p.compiled != nil {
			c.Plans++
			c.Policies += len(p.compiled.Rules)
		}
	}
	return c
}

// A Problem describes an object that cannot be used as stored.
type Problem struct {
	// Kind is "plan", "tenant", "key", "operator_key", "override", "list_entry", "block", "policy_change" (its ID is
	// tenant/policy), or "steering". The latter means all exceptions of the tenant with that ID.
	Kind string
	ID   string
	Name string // slug; for an exception, the slug of its tenant; for a key, its name
	// Revision is the revision of the invalid row.
	Revision int64
	Err      error
	// Since is when this node first found the problem.
	Since time.Time
	// Kept means that the last valid version of the object is still in use. Otherwise there was none: a tenant or a
	// key is unknown, and all requests of a plan's tenants are denied.
	Kept bool
}

type object struct{ kind, id string }

// Problems returns the objects that cannot be used, ordered by kind and ID.
func (s *Snapshot) Problems() []Problem {
	list := make([]Problem, 0, len(s.faults))
	for _, p := range s.faults {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// ProblemCount returns the length of Problems without building the list.
func (s *Snapshot) ProblemCount() int { return len(s.faults) }

// A plan is the last valid version of a published plan.
type plan struct {
	slug     string
	compiled *enforcement.Plan // nil if there never was a valid version
	positive int               // number of limits with a quota above 0
	limits   int
}

// A tenant contains the data that is needed to compile the tenant again when its plan changes.
type tenant struct {
	row     tenantRow
	subject *enforcement.Subject // nil if the tenant cannot be used
	keys    [][32]byte           // hashes
	rows    *tenantRows          // its exceptions; nil if it has none
	// exceptionsCompiled means that subject.Exceptions includes all valid rows.
	exceptionsCompiled bool
	// generation is the number of the snapshot for which this record was created. Only its builder may change the
	// record.
	generation uint64
}

// tenantRow is the part of a tenants.Tenant that enforcement needs.
type tenantRow struct {
	id, slug, home string
	number         uint32
	status         tenants.Status
	noPolicy       tenants.NoPolicy
	planID         string
	planRevision   int64
	revision       int64
	known          bool // the tenant's row was read, not only its keys or exceptions
	redact         bool
	routeOptional  bool
	maxKeys        int64
	timeZone       string
	anchorDay      int
}

// A keyRef says which hash and which tenant belong to the ID of a key.
type keyRef struct {
	hash     [32]byte
	tenantID string // "" for an operator key
}
