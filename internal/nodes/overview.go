package nodes

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// A Service returns the reports of all nodes with warnings.
type Service struct {
	store Store
	own   atomic.Pointer[Beacon]
}

// NewService returns a Service that reads from a store.
func NewService(s Store) *Service { return &Service{store: s} }

// ShowOwn registers b, the Beacon of this process. While the database rejects the report of this
// process, Overview then takes the report from b.
func (s *Service) ShowOwn(b *Beacon) { s.own.Store(b) }

// An Overview contains the reports of all nodes at one time, with warnings.
type Overview struct {
	// At is the time of the overview by the database's clock.
	At time.Time
	// Revision is the newest revision in the database.
	Revision int64
	// Nodes is ordered by name, then by start time.
	Nodes []Report
	// Versions contains the releases that the nodes run, without silent nodes. The most frequent
	// release comes first. If there is more than one release, an upgrade is not complete.
	Versions []Release
	// Silent is the number of silent nodes. Unwell is the number of nodes with a warning or an
	// alarm, including silent nodes.
	Silent, Unwell int
}

// OneVersion reports whether all nodes that are not silent run the same release.
func (o *Overview) OneVersion() bool { return len(o.Versions) <= 1 }

// A Release is a version of Headgate and the number of nodes that run it.
type Release struct {
	Version string
	Nodes   int
}

// A Report is the report of a node with its warnings.
type Report struct {
	Node
	// Silent says that the node has not reported for so long that it probably stopped. The
	// other fields are then out of date.
	Silent bool
	// SilentFor is the time since the node's last report.
	SilentFor time.Duration
	// Up is the time from the start of the process to its last report.
	Up time.Duration
	// Confirmed is the time since the database last confirmed that the node had the newest
	// revision.
	Confirmed time.Duration
	// Behind is the newest revision minus the revision of the node's snapshot. A small
	// difference is normal shortly after an edit, because reports are up to five seconds old.
	Behind int64
	// Verdicts are the notes, warnings and alarms about the node, the most severe first.
	Verdicts []Verdict
}

// Level returns the most severe level of the verdicts, or 0 if there are none.
func (r *Report) Level() Level {
	if len(r.Verdicts) == 0 {
		return 0
	}
	return r.Verdicts[0].Level
}

// Overview returns the reports of all nodes with their warnings.
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

// Alive returns the number of nodes that are neither silent nor stopping. It counts this process
// even if the report of this process is not written yet.
func (s *Service) Alive(ctx context.Context) (int, error) {
	c, err := s.store.Census(ctx)
	if err != nil {
		return 0, err
	}
	if b := s.own.Load(); b != nil {
		c.put(b.Unwritten())
	}
	return max(c.live(), 1), nil
}

// put adds the report n of this process to c. It replaces the stored report of this process, if
// there is one. If n is nil, put does nothing.
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

// OverviewOf computes the overview of a Census.
func OverviewOf(c Census) Overview {
	o := Overview{At: c.At, Revision: c.Revision, Nodes: make([]Report, len(c.Nodes))}
	live, refused := c.live(), c.refused()
	for i := range c.Nodes {
		r := &o.Nodes[i]
		*r = report(&c.Nodes[i], c)
		r.Verdicts = verdicts(r, c.At, live)
		if r.Silent && !refused.IsZero() && r.SeenAt.After(refused.Add(-Silence)) {
			r.Verdicts = []Verdict{{Warning, "unreported", "no report for " + span(r.SilentFor) + ": the database rejects writes"}}
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

// refused returns the time since which the database rejects writes, by the database's clock. It
// ignores silent nodes. If no other node reports that the database rejects writes, it returns
// the zero time.
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

// releases returns the releases that the nodes run, and the number of nodes for each. It leaves
// out silent nodes and nodes whose report is unreadable.
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
