package enforcement

// The words of a policy that both its writer (plans) and its enforcement use.
// They are strings as on the wire.

// PolicyMode says whether a policy refuses.
type PolicyMode string

// The modes of a policy.
const (
	// PolicyEnforce: it refuses.
	PolicyEnforce PolicyMode = "enforce"
	// PolicyShadow: it counts what it would refuse, after the enforced ones were granted.
	PolicyShadow PolicyMode = "shadow"
	// PolicyOff: it does nothing.
	PolicyOff PolicyMode = "off"
)

// Missing says what happens when an attribute of count_by is not sent.
type Missing string

// The answers to a missing attribute.
const (
	// MissingShared: the missing place is a value of its own.
	MissingShared Missing = "shared"
	// MissingSkip: the policy does not apply.
	MissingSkip Missing = "skip"
	// MissingDeny: the request is refused with 403.
	MissingDeny Missing = "deny"
)

// OnFailure says what answers for a policy when the limiter is away.
type OnFailure string

// The failure modes.
const (
	// OnFailureLocal: this node's in-process limiter, with its share of the quota.
	OnFailureLocal OnFailure = "local"
	// OnFailureOpen: the request passes this policy.
	OnFailureOpen OnFailure = "open"
	// OnFailureClosed: 503.
	OnFailureClosed OnFailure = "closed"
)

// Consistency of a policy says where its charges are counted.
type Consistency string

const (
	// Exact counts every charge where all nodes see it.
	Exact Consistency = "exact"
	// Leased lets each node draw quota ahead and spend it without asking. It never
	// allows more than Exact; it may deny early by what other nodes hold.
	Leased Consistency = "leased"
)
