package preview

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// settling is the longest time that nodes need to load a newly published version.
const settling = time.Minute

// maxPublications is the maximum number of publications whose versions a preview reads. Counts from
// before the oldest of them are not used.
const maxPublications = 20

// An earlierVersion is a version that decided in the time range, before the published version or
// before a later earlierVersion.
type earlierVersion struct {
	side
	number int
	until  time.Time // time at which all nodes had loaded the next version
	next   int       // number of the next version
}

// A cut is the time from which on the counts of a published policy are used, because another version
// decided other requests under its slug before.
type cut struct {
	at      time.Time
	version int // the version that came into force then
}

// readHistory reads the versions that were in force since the time first. For each published policy,
// it sets the cut of its counts in r.cuts. A version that has the policy with the same match,
// count_by and costs does not cut it. If only numbers or modes differ, readHistory replaces the
// verdict of a counted figure by one that replays the requests.
func (r *run) readHistory(ctx context.Context, first time.Time) error {
	r.cuts, r.varied = make(map[string]cut), make(map[string]bool)
	if r.preview.Plan.Latest <= 1 {
		return nil // no other version decided requests
	}
	earlier, err := r.earlierVersions(ctx, first)
	if err != nil {
		return err
	}
	for i := range r.verdicts {
		for k := range earlier {
			if r.ends(i, &earlier[k]) {
				break
			}
		}
	}
	for i := range r.published.policies {
		slug := r.published.policies[i].Slug
		for k := range earlier {
			if e := &earlier[k]; !r.continues(i, e) {
				r.cut(slug, e)
				break
			}
		}
	}
	if len(earlier) > 0 {
		r.since = earlier[0].until
	}
	return nil
}

// earlierVersions returns the versions that decided requests after the time first, the newest first.
// It does not include the published version unless another one was in force in between.
func (r *run) earlierVersions(ctx context.Context, first time.Time) (list []earlierVersion, err error) {
	lines, err := r.service.c.Audit.AuditEntries(ctx, audit.Filter{Object: r.preview.Plan.ID, Action: "plan.publish", Limit: maxPublications})
	if err != nil {
		return nil, err
	}
	read := map[int]side{r.preview.Published: r.published}
	next, until := r.preview.Published, time.Time{}
	for i := range lines {
		pub, known := plans.PublicationOf(lines[i])
		if i > 0 {
			e := earlierVersion{number: pub.Version, until: until, next: next}
			if known {
				if e.side, err = r.sideOf(ctx, pub.Version, read); err != nil {
					return nil, err
				}
			}
			list = append(list, e)
		}
		at := lines[i].At
		if lines[i].Revision == r.version.Revision {
			at = r.version.PublishedAt // its first publication, whose time the version contains
		}
		next, until = pub.Version, wholeMinute(at.Add(settling))
		if !until.After(first) {
			return list, nil
		}
	}
	if len(lines) == maxPublications {
		list = append(list, earlierVersion{until: until, next: next}) // an unread version, without policies
	}
	return list, nil
}

func (r *run) sideOf(ctx context.Context, number int, read map[int]side) (side, error) {
	if s, known := read[number]; known {
		return s, nil
	}
	v, err := r.service.c.Plans.Version(ctx, r.preview.Plan.ID, number)
	switch {
	case problem.Is(err, problem.NotFound):
		return side{}, nil
	case err != nil:
		return side{}, fmt.Errorf("read version %d of plan %s: %w", number, r.preview.Plan.Slug, err)
	}
	read[number] = newSide(v.Document)
	return read[number], nil
}

// ends reports whether the counts of the earlier version e cannot be used for policy i of the draft.
// It then cuts the counts of the source of the policy. If they can be used only in a replay, ends
// changes the verdict.
func (r *run) ends(i int, e *earlierVersion) bool {
	v := &r.verdicts[i]
	if v.source < 0 || v.how == howNone || v.how == howZero {
		return false
	}
	slug := r.published.policies[v.source].Slug
	at := e.place(slug)
	if v.how != howReplayed {
		before := assessPolicy(&r.draft, &e.side, i)
		if before.how == v.how && before.moved == v.moved && before.source >= 0 && before.source == at {
			return false
		}
	}
	if at < 0 || unusable(&r.draft, &e.side, i, at) != "" {
		r.cut(slug, e)
		return true
	}
	p, q := &r.draft.policies[i], &e.policies[at]
	replayed := v.replays(p, q)
	if v.how == howReplayed && replayed.how == howReplayed {
		return false
	}
	now := v.replays(p, &r.published.policies[v.source])
	if replayed.how == howReplayed && now.how == howReplayed {
		now.moved = false
		now.why = fmt.Sprintf("Version %d decided a part of the range with other numbers than version %d, so the requests of each minute are "+
			"replayed. Their order within a minute is unknown.", e.number, r.preview.Published)
		*v = now
		return false
	}
	if r.traceKnows(i, e) {
		*v = verdict{
			certainty: NeedsShadow, how: howNone, source: -1, traced: v.source, rivals: v.rivals,
			why: fmt.Sprintf("Version %d decided a part of the range, and counts by minute do not say what version %d would have denied then. "+
				"A range that begins after its publication at %s has exact figures.",
				e.number, e.next, e.until.Add(-settling).UTC().Format("2 January 15:04 MST")),
		}
		return false
	}
	r.cut(slug, e)
	return true
}

// traceKnows reports whether the trace of the earlier version e has the requests of policy i of the draft
// and of all its rivals.
func (r *run) traceKnows(i int, e *earlierVersion) bool {
	if r.service.c.NewLimiter == nil {
		return false
	}
	for _, k := range append([]int{i}, r.verdicts[i].rivals...) {
		p := &r.draft.policies[k]
		at := e.place(p.Slug)
		if limits(p) && (r.verdicts[k].traced < 0 || !replayable(p) || at < 0 || unusable(&r.draft, &e.side, k, at) != "") {
			return false
		}
	}
	return true
}

// continues reports whether the earlier version e has the published policy i with the same match,
// count_by and costs. If its decisions differ, it adds the policy to r.varied.
func (r *run) continues(i int, e *earlierVersion) bool {
	q := &r.published.policies[i]
	at := e.place(q.Slug)
	if at < 0 || q.Mode.Counts() && unusable(&r.published, &e.side, i, at) != "" {
		return false
	}
	r.varied[q.Slug] = r.varied[q.Slug] || !sameDecisions(q, &e.policies[at])
	return true
}

func (r *run) cut(slug string, e *earlierVersion) {
	if e.until.After(r.cuts[slug].at) {
		r.cuts[slug] = cut{at: e.until, version: e.next}
	}
}

// clip moves the start of the time range to the first time whose counts are used, if the counts of
// every policy are cut.
func (r *run) clip() {
	p := &r.preview
	var first cut
	for i := range r.published.policies {
		q := &r.published.policies[i]
		if !q.Mode.Counts() {
			continue
		}
		c, cut := r.cuts[q.Slug]
		if !cut {
			return
		}
		if first.at.IsZero() || c.at.Before(first.at) {
			first = c
		}
	}
	if first.at.After(p.From) {
		p.Clipped = fmt.Sprintf("Version %d was published at %s, and figures begin at %s, when all nodes have it. Another version decided "+
			"other requests before.", first.version, first.at.Add(-settling).Format("2 January 15:04 MST"), first.at.Format("15:04 MST"))
		p.From = first.at
	}
}

// countsFrom returns the time from which on the counts of a published policy are used: the start of
// the time range, or its cut.
func (r *run) countsFrom(slug string) time.Time { return maxTime(r.preview.From, r.cuts[slug].at) }

// cutNote returns a sentence that says from when on the counts of a published policy are used, or "".
func (r *run) cutNote(slug string) string {
	c := r.cuts[slug]
	if !c.at.After(r.preview.From) {
		return ""
	}
	return fmt.Sprintf("Its figures begin at %s, when version %d came into force. Before, the plan had no policy with this match, count_by "+
		"and way of counting.", c.at.UTC().Format("2 January 15:04 MST"), c.version)
}

// historyNote returns a sentence that says that several versions decided the counted requests of a
// policy, or "".
func (r *run) historyNote(slug string) string {
	if !r.varied[slug] || !r.since.After(r.countsFrom(slug)) {
		return ""
	}
	return fmt.Sprintf("Version %d came into force at %s. The counted denials are those of all versions in the range.",
		r.preview.Published, r.since.Add(-settling).UTC().Format("2 January 15:04 MST"))
}
