package snapshot

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/cow"
	"github.com/headgate/headgate/tenants"
)

// A Snapshot is the control plane at one revision, compiled for look-ups. It is immutable.
type Snapshot struct {
	revision int64
	now      func() time.Time
	// generation tells the records made for this snapshot from older ones.
	generation uint64

	keys    cow.Map[[32]byte, *Key]  // by the hash of their token, also those of unusable tenants
	keyIDs  cow.Map[string, keyRef]  // by id
	tenants cow.Map[string, *tenant] // by id
	slugs   cow.Map[string, string]  // slug of a usable tenant to its id
	numbers cow.Map[uint32, string]  // number of a usable tenant to its id
	rows    cow.Map[object, rowRef]  // of what was set beside plans
	plans   map[string]*plan         // by id
	faults  map[object]Problem       // what could not be used
	// operators are the operator keys by id; operatorUntil is when the last
	// valid one ends, in microseconds since the epoch.
	operators     map[string]*Key
	operatorUntil int64
	// size is how many rows there are; ends has the first end in each chunk of
	// them (0: none), nextEnd the first of all, in microseconds since the epoch.
	size    exceptionCounts
	ends    []int64
	nextEnd int64
}

// Scopes is a set of tenants.Scope.
type Scopes uint8

const (
	scopeCheck Scopes = 1 << iota
	scopeRead
	scopeManage
)

// ScopesOf returns the set; manage implies read. ok is false for an unknown scope, which grants
// nothing.
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

// A Key is a compiled API key.
type Key struct {
	ID       string
	Name     string
	Operator bool
	Scopes   Scopes
	// ExpiresAt and RevokedAt in microseconds since the epoch; 0: never. A
	// RevokedAt in the future is a rotated key, valid until then.
	ExpiresAt int64
	RevokedAt int64
	// Subject is the key's tenant; nil for operator keys.
	Subject *enforcement.Subject
}

// Valid reports whether the key is neither expired nor revoked at an instant,
// in microseconds since the epoch.
func (k *Key) Valid(nowMicros int64) bool { return nowMicros < k.until() }

// until returns when the key ends.
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

// Key finds a key by the SHA-256 of its token, also an expired or revoked one: see Valid.
func (s *Snapshot) Key(hash [32]byte) (*Key, bool) {
	k, ok := s.keys.Get(hash)
	if !ok || k.Subject == nil && !k.Operator {
		return nil, false
	}
	return k, true
}

// Subject finds a tenant by id or slug.
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

// SubjectByNumber finds a tenant by its number.
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

// Revision returns the revision of the control plane.
func (s *Snapshot) Revision() int64 { return s.revision }

// HasOperatorKey reports whether a valid operator key exists now. The bootstrap key is valid only
// while none does.
func (s *Snapshot) HasOperatorKey() bool { return s.now().UnixMicro() < s.operatorUntil }

// Counts are the numbers of usable objects.
type Counts struct {
	Plans    int // with a version that can be used
	Policies int // of those
	Tenants  int // that can be used
	Keys     int // tenants' and operator's, ended ones too
	// Exceptions, including those that have ended or whose policy the plan does not have.
	Overrides, Entries, Blocks int
}

// Counts returns the numbers of usable objects.
func (s *Snapshot) Counts() Counts {
	c := Counts{
		Tenants: s.numbers.Len(), Keys: s.keys.Len(),
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

// A Problem is an object that cannot be used as stored.
type Problem struct {
	// Kind is "plan", "tenant", "key", "operator_key", "override", "list_entry",
	// "block", "policy_change" (its ID is tenant/policy), or "steering": all that
	// was set for the tenant with that ID.
	Kind string
	ID   string
	Name string // slug, for what was set beside a plan the tenant's; or a key's name
	// Revision of the row at fault.
	Revision int64
	Err      error
	// Since is when it was first seen.
	Since time.Time
	// Kept: the last good version is still in force. Otherwise there was none: a
	// tenant or key is unknown, and the tenants of a plan are refused.
	Kept bool
}

type object struct{ kind, id string }

// Problems lists the objects that cannot be used, by kind and ID.
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

// A plan has the last good version of a published plan.
type plan struct {
	slug     string
	compiled *enforcement.Plan // the last good version; nil: there never was one
	positive int               // limits of it with a quota above 0
	limits   int
}

// A tenant has the data that is needed to compile it again when its plan changes.
type tenant struct {
	row     tenantRow
	subject *enforcement.Subject // nil: not usable
	keys    [][32]byte           // hashes
	rows    *tenantRows          // what was set beside its plan; nil: nothing
	// exceptionsCompiled: subject.Exceptions has every row that can have an effect.
	exceptionsCompiled bool
	// generation of the snapshot that it was made for, which alone may write it.
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
	known          bool // a row was seen, not only what belongs to it
	redact         bool
}

// A keyRef locates a key by its ID.
type keyRef struct {
	hash     [32]byte
	tenantID string // "" for an operator key
}
