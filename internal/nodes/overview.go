package nodes

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// A Service reads all nodes.
type Service struct {
	store Store
	own   atomic.Pointer[Beacon]
}

// NewService returns a Service.
func NewService(s Store) *Service { return &Service{store: s} }

// ShowOwn makes the Service show the report of this process also while the
// database takes no reports.
func (s *Service) ShowOwn(b *Beacon) { s.own.Store(b) }

// An Overview is all nodes at one time.
type Overview struct {
	// At is that moment by the database's clock.
	At time.Time
	// Revision is the newest there is.
	Revision int64
	// Nodes by name, those of one name by when they started.
	Nodes []Report
	// Versions of the nodes that are not silent, the most frequent first. More than one: an
	// upgrade is not complete.
	Versions []Release
	// Silent is the number of silent nodes, Unwell the number of nodes with a warning or an alarm,
	// including silent ones.
	Silent, Unwell int
}

// OneVersion reports whether all nodes that are not silent run one release.
func (o *Overview) OneVersion() bool { return len(o.Versions) <= 1 }

// A Release is a version and the number of its nodes.
type Release struct {
	Version string
	Nodes   int
}

// A Report is a node with its warnings.
type Report struct {
	Node
	// Silent means that the rest of the report is old.
	Silent bool
	// SilentFor is how long ago it was seen.
	SilentFor time.Duration
	// Up is the time from the start to the last report.
	Up time.Duration
	// Confirmed is the age of the last confirmation that the revision is the newest.
	Confirmed time.Duration
	// Behind is how many revisions the node lacked. A few are usual just after an edit, because
	// reports are up to five seconds old.
	Behind int64
	// Verdicts are the warnings, the most severe first.
	Verdicts []Verdict
}

// Level returns the most severe level; the zero value without warnings.
func (r *Report) Level() Level {
	if len(r.Verdicts) == 0 {
		return 0
	}
	return r.Verdicts[0].Level
}

// Overview reads all nodes and adds their warnings.
func (s *Service) Overview(ctx context.Context) (Overview, error) {
	c, err := s.store.Census(ctx)
	if err != nil {
		return Overview{}, err
	}
	if b := s.own.Load(); b != nil {
		c.put(b.Unwritten())
	}
	return OverviewOf(c), nil
}

// put puts a report in the place of the node's stored one.
func (c *Census) put(n *Node) {
	if n == nil {
		return
	}
	own := *n
	own.SeenAt = c.At.Add(-time.Since(n.At))
	at := slices.IndexFunc(c.Nodes, func(stored Node) bool { return stored.ID == n.ID })
	if at < 0 {
		c.Nodes = append(c.Nodes, own)
		return
	}
	c.Nodes[at] = own
}

// OverviewOf returns the overview of a Census.
func OverviewOf(c Census) Overview {
	o := Overview{At: c.At, Revision: c.Revision, Nodes: make([]Report, len(c.Nodes))}
	live, refused := c.live(), c.refused()
	for i := range c.Nodes {
		r := &o.Nodes[i]
		*r = report(&c.Nodes[i], c)
		r.Verdicts = verdicts(r, c.At, live)
		if r.Silent && !refused.IsZero() && r.SeenAt.After(refused.Add(-Silence)) {
			r.Verdicts = []Verdict{{Warning, "unreported", "not known for " + span(r.SilentFor) + ": the database takes no reports"}}
		}
		if r.Silent {
			o.Silent++
		}
		if r.Level() >= Warning {
			o.Unwell++
		}
	}
	slices.SortFunc(o.Nodes, func(a, b Report) int { return Compare(a.Node, b.Node) })
	o.Versions = releases(o.Nodes)
	return o
}

// live returns the number of nodes that are neither silent nor stopping.
func (c *Census) live() (n int) {
	for i := range c.Nodes {
		if node := &c.Nodes[i]; !node.Silent(c.At) && !node.Draining {
			n++
		}
	}
	return n
}

// refused is since when the database refuses writes, by its own clock; zero: it
// takes them, as far as a node that is not silent says.
func (c *Census) refused() (since time.Time) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Silent(c.At) || n.Database.Refusal.Since.IsZero() {
			continue
		}
		if at := c.At.Add(-n.Ago(n.Database.Refusal.Since, c.At)); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	return since
}

func report(n *Node, c Census) Report {
	r := Report{Node: *n, Silent: n.Silent(c.At), SilentFor: n.SilentFor(c.At)}
	if n.Unreadable {
		return r
	}
	r.Up = max(0, n.At.Sub(n.StartedAt))
	r.Confirmed = max(0, n.Ago(n.Snapshot.ConfirmedAt, c.At))
	r.Behind = max(0, c.Revision-n.Snapshot.Revision)
	return r
}

// releases counts the versions of nodes that are not silent.
func releases(nodes []Report) []Release {
	var list []Release
	for i := range nodes {
		n := &nodes[i]
		if n.Silent || n.Unreadable {
			continue
		}
		at := slices.IndexFunc(list, func(r Release) bool { return r.Version == n.Version })
		if at < 0 {
			at = len(list)
			list = append(list, Release{Version: n.Version})
		}
		list[at].Nodes++
	}
	slices.SortFunc(list, func(a, b Release) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Version, b.Version))
	})
	return list
}
