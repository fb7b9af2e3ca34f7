package snapshot

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/cow"
	"github.com/headgate/headgate/tenants"
)

// A Snapshot contains all tenants, keys, plans and exceptions of one revision, compiled for
// lookups. It is immutable.
type Snapshot struct {
	revision int64
	now      func() time.Time
	// generation is the number of this snapshot. Snapshots share records. A builder may change a
	// record only if the record has the generation of the builder's snapshot.
	generation uint64

	keys    cow.Map[[32]byte, *Key]  // by the hash of the token; includes keys of tenants that have never been valid
	keyIDs  cow.Map[string, keyRef]  // by id
	tenants cow.Map[string, *tenant] // by id
	slugs   cow.Map[string, string]  // IDs of valid tenants by slug
	numbers cow.Map[uint32, string]  // IDs of valid tenants by number
	rows    cow.Map[object, rowRef]  // where the row of each override, list entry and block is stored
	plans   map[string]*plan         // by id
	faults  map[object]Problem       // objects that cannot be used
	// operators are the operator keys by ID. operatorUntil is the time at which the last valid one
	// ends, in microseconds since the epoch.
	operators     map[string]*Key
	operatorUntil int64
	// size contains the numbers of exceptions by kind. ends contains, for each chunk of the map
	// rows, the earliest end of an exception in this chunk, or 0 if none ends. nextEnd is the
	// earliest of ends. Ends are in microseconds since the epoch.
	size    exceptionCounts
	ends    []int64
	nextEnd int64
	// planless is the number of usable tenants that have no plan.
	planless int
}

// Scopes is a set of scopes. Each bit stands for one tenants.Scope.
type Scopes uint8

const (
	scopeCheck Scopes = 1 << iota
	scopeRead
	scopeManage
	scopeIdentify

	// NumScopes is the number of possible sets of scopes.
	NumScopes = 1 << iota
)

// ScopesOf returns the set of the scopes in words. The scope manage includes read. If a scope is
// unknown, ok is false; the set then contains only the known scopes.
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
		case tenants.ScopeIdentify:
			set |= scopeIdentify
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
	// ExpiresAt and RevokedAt are in microseconds since the epoch; 0 means never. A rotated key
	// has a RevokedAt in the future and stays valid until then.
	ExpiresAt int64
	RevokedAt int64
	// Bounds restricts which checks a client may send with the key.
	Bounds tenants.Bounds
	// AllowedIPs are the addresses from which clients may use the key. If it is empty, the key
	// works from all addresses.
	AllowedIPs tenants.Networks
	// Subject is the tenant of the key; nil for an operator key.
	Subject *enforcement.Subject
	// used holds the time at which the key last authenticated a request on this node, in
	// milliseconds since the epoch; 0 means never. The copies of a key in all snapshots share this
	// variable. used is nil if the key is not in the database, such as the bootstrap key.
	used *atomic.Int64
}

// Valid reports whether the key is neither expired nor revoked at nowMicros, in microseconds since
// the epoch.
func (k *Key) Valid(nowMicros int64) bool { return nowMicros < k.until() }

// until returns the time at which the key becomes invalid, in microseconds since the epoch.
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

// Key returns the key whose token has this SHA-256 hash. The key may be expired or revoked, so
// callers must check Valid. If the tenant never had a valid row, Key does not return its keys.
func (s *Snapshot) Key(hash [32]byte) (*Key, bool) {
	k, ok := s.keys.Get(hash)
	if !ok || k.Subject == nil && !k.Operator {
		return nil, false
	}
	return k, true
}

// Subject returns the compiled tenant with an ID or slug. It does not return a tenant that never
// had a valid row.
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

// SubjectByNumber returns the compiled tenant with a number. It does not return a tenant that never
// had a valid row.
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

// Slugs returns the slugs of all usable tenants in ascending order.
func (s *Snapshot) Slugs() []string {
	slugs := make([]string, 0, s.slugs.Len())
	for slug := range s.slugs.All {
		slugs = append(slugs, slug)
	}
	slices.Sort(slugs)
	return slugs
}

// Plans yields every plan that has a usable version, in no order.
func (s *Snapshot) Plans() iter.Seq[*enforcement.Plan] {
	return func(yield func(*enforcement.Plan) bool) {
		for _, p := range s.plans {
			if p.compiled != nil && !yield(p.compiled) {
				return
			}
		}
	}
}

// Revision returns the revision of the rows that the snapshot was compiled from.
func (s *Snapshot) Revision() int64 { return s.revision }

// HasOperatorKey reports whether at least one operator key is valid now. The bootstrap key is
// accepted only while no operator key is valid.
func (s *Snapshot) HasOperatorKey() bool { return s.now().UnixMicro() < s.operatorUntil }

// Counts are the numbers of objects in a snapshot that can be used.
type Counts struct {
	Plans    int // plans that have a valid version
	Policies int // policies of these plans
	Tenants  int // usable tenants
	Planless int // usable tenants without a plan
	Keys     int // keys of tenants and of the operator, including keys that have ended
	// The numbers of exceptions include exceptions that have expired, and exceptions of a policy
	// that the tenant's plan does not have.
	Overrides, Entries, Blocks int
}

// Counts counts the objects in the snapshot; see the type Counts.
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

// A Problem says why the stored row of an object is invalid.
type Problem struct {
	// Kind is "plan", "tenant", "key", "operator_key", "override", "list_entry", "block",
	// "policy_change" or "steering". For "policy_change", ID is the ID of the tenant, "/", and the
	// policy. "steering" stands for all exceptions of a tenant; ID is the ID of the tenant.
	Kind string
	ID   string
	Name string // slug; for an exception, the slug of its tenant; for a key, its name
	// Revision is the revision of the invalid row.
	Revision int64
	Err      error
	// Since is the time at which this node first found the problem. If a problem of the object is
	// solved and another one appears later, Since is the time of the later one.
	Since time.Time
	// Kept says that the last valid version of the object is still in use. If Kept is false, no
	// version is in use: a tenant or key is treated as unknown, a plan denies all requests of its
	// tenants, and an exception has no effect.
	Kept bool
}

type object struct{ kind, id string }

// Problems returns the objects whose stored rows are invalid, ordered by kind and ID.
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

// A plan is the compiled form of the last valid version of a published plan.
type plan struct {
	slug     string
	compiled *enforcement.Plan // nil if there never was a valid version
	positive int               // number of limits with a quota above 0; the field limits is the number of all limits
	limits   int
}

// A tenant contains the data from which the builder can compile the tenant again when its plan
// changes.
type tenant struct {
	row     tenantRow
	subject *enforcement.Subject // nil if the tenant never had a valid row
	keys    [][32]byte           // hashes
	rows    *tenantRows          // its exceptions; nil if it has none
	// exceptionsCompiled says that subject.Exceptions is compiled from all valid rows of
	// exceptions.
	exceptionsCompiled bool
	// generation is the number of the snapshot whose builder created this record. Only this builder
	// may change the record.
	generation uint64
}

// tenantRow has the fields of a tenants.Tenant from which a subject is compiled.
type tenantRow struct {
	id, slug, home string
	number         uint32
	status         tenants.Status
	noPolicy       tenants.NoPolicy
	planID         string
	planRevision   int64
	revision       int64
	known          bool // set if the row of the tenant was read; not set if only rows of its keys or exceptions were read
	redact         bool
	routeOptional  bool
	maxKeys        int64
	sampleAllowed  uint32
	noTrace        bool
	timeZone       string
	anchorDay      int
}

// A keyRef has the hash and the tenant of a key. The map Snapshot.keyIDs has a keyRef for the ID of
// each key.
type keyRef struct {
	hash     [32]byte
	tenantID string // "" for an operator key
}
