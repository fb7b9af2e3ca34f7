package admin

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/web/views"
)

// fleetView returns the view of all nodes.
func (w *pages) fleetView(ctx context.Context) (views.Fleet, error) {
	o, err := w.cfg.Nodes.Overview(ctx)
	if err != nil {
		return views.Fleet{}, err
	}
	f := views.Fleet{Headline: headline(&o), Tone: "good"}
	switch {
	case len(o.Nodes) == 0:
		f.Tone, f.Hint = "warn", "A node reports some seconds after its start."
	case o.Unwell > 0:
		f.Tone = "bad"
		for i := range o.Nodes {
			if o.Nodes[i].Level() == nodes.Warning && f.Tone != "bad" {
				f.Tone = "warn"
			}
		}
	}
	if !o.OneVersion() {
		f.Hint = "Different versions run: " + versionWords(o.Versions) + ". This is normal during an upgrade. Finish the upgrade."
	} else if len(o.Nodes) == 1 && o.Nodes[0].Limiter == nodes.LimiterInProcess {
		f.Hint = "One node needs no other services. Before you start a second node, configure Redis and PostgreSQL for both."
	}
	for i := range o.Nodes {
		f.Nodes = append(f.Nodes, w.nodeView(ctx, &o.Nodes[i], &o))
	}
	return f, nil
}

// headline summarizes the state of all nodes in one line.
func headline(o *nodes.Overview) string {
	if len(o.Nodes) == 0 {
		return "No node has reported yet"
	}
	parts := []string{views.Quantity(int64(len(o.Nodes)), "node", "nodes")}
	switch {
	case o.Unwell == 0 && len(o.Nodes) == 1:
		parts = append(parts, "healthy")
	case o.Unwell == 0:
		parts = append(parts, "all healthy")
	default:
		parts = append(parts, fmt.Sprintf("%d with problems", o.Unwell))
	}
	if o.Silent > 0 {
		parts = append(parts, fmt.Sprintf("%d silent", o.Silent))
	}
	if o.OneVersion() {
		if len(o.Nodes) > 1 {
			parts = append(parts, "one version")
		}
	} else {
		parts = append(parts, fmt.Sprintf("%d versions", len(o.Versions)))
	}
	return strings.Join(append(parts, "revision "+strconv.FormatInt(o.Revision, 10)), ", ")
}

func versionWords(list []nodes.Release) string {
	words := make([]string, len(list))
	for i, r := range list {
		words[i] = cmp.Or(r.Version, "unknown") + " on " + views.Quantity(int64(r.Nodes), "node", "nodes")
	}
	return strings.Join(words, ", ")
}

func levelText(l nodes.Level) string {
	if l == 0 {
		return "healthy"
	}
	return l.String()
}

func toneOf(l nodes.Level) string {
	switch l {
	case nodes.Alarm:
		return "bad"
	case nodes.Warning:
		return "warn"
	case nodes.Note:
		return "quiet"
	}
	return "good"
}

// nodeView returns the view of one node. If the node no longer sends reports, the view
// leaves out values that change quickly.
func (w *pages) nodeView(ctx context.Context, r *nodes.Report, o *nodes.Overview) views.FleetNode {
	n := views.FleetNode{
		ID: r.ID, Name: r.Name, This: r.ID == w.cfg.Process.Node && r.ID != "", Silent: r.Silent,
		Level: levelText(r.Level()), Tone: toneOf(r.Level()),
	}
	for _, v := range r.Verdicts {
		n.Verdicts = append(n.Verdicts, views.FleetVerdict{Level: v.Level.String(), Tone: toneOf(v.Level), Text: v.Text})
	}
	add := func(name string, value views.Number, note, tone string) {
		n.Facts = append(n.Facts, views.FleetFact{Name: name, Value: value, Note: note, Tone: tone})
	}
	word := func(text string) views.Number { return views.Number{Text: text, Exact: text} }
	seen := views.Duration(r.SilentFor.Truncate(time.Second))
	if r.Unreadable {
		add("Seen", views.Number{Text: seen.Text + " ago", Exact: seen.Exact}, "", "")
		return n
	}
	tone := ""
	if len(o.Versions) > 1 && r.Version != o.Versions[0].Version {
		tone = "warn"
	}
	add("Version", word(r.Version), r.GoVersion, tone)
	if r.Silent {
		note := fmt.Sprintf("listed, and an alarm, until it reports again, or for %d h", nodes.Keep/time.Hour)
		add("Last seen", views.Number{Text: seen.Text + " ago", Exact: seen.Exact}, note, "bad")
		add("Was up", views.Duration(r.Up.Truncate(time.Second)), "", "")
		add("Revision", word(strconv.FormatInt(r.Snapshot.Revision, 10)), "in its last report", "")
		return n
	}
	add("Up", views.Duration(r.Up.Truncate(time.Second)), "since "+views.InZone(ctx, r.StartedAt, "2 Jan 15:04"), "")
	note, tone := "the newest", ""
	if r.Behind > 0 {
		note, tone = fmt.Sprintf("%d behind", r.Behind), "warn"
	}
	add("Revision", word(strconv.FormatInt(r.Snapshot.Revision, 10)), note, tone)
	add("Confirmed", views.Number{Text: views.Duration(r.Confirmed.Truncate(time.Second)).Text + " ago", Exact: r.Confirmed.String()},
		"by the database", "")
	if r.Snapshot.Problems > 0 {
		add("Problems", views.Count(int64(r.Snapshot.Problems)), "objects that the node cannot use", "warn")
	}
	redisFacts(r, o.At, add)
	if f := r.Database.Refusal; !f.Since.IsZero() {
		since := views.Duration(max(0, r.Ago(f.Since, o.At)).Truncate(time.Second))
		add("Database", word("refuses writes"), "for "+since.Text+": "+f.Answer, "bad")
	}
	if l := r.Database.Polls; l.Calls > 0 {
		add("Database", views.Duration(l.P50), "median, "+views.Duration(l.P99).Text+" p99 of a read", "")
	}
	if d := r.Database.Report; d > 0 {
		add("Write", views.Duration(d), "of the last report", "")
	}
	add("Decisions", views.Number{
		Text:  views.Count(int64(r.Counts.Rate()+0.5)).Text + " / s",
		Exact: strconv.FormatFloat(r.Counts.Rate(), 'f', 2, 64),
	}, "", "")
	add("Waiting", views.Count(r.Counts.WaitingRows), "rows of counts, "+views.Count(r.Counts.WaitingRefusals).Text+" denials", "")
	if !r.Counts.FailingSince.IsZero() {
		add("Counts", word("not written"), "for "+views.Duration(max(0, r.Ago(r.Counts.FailingSince, o.At)).Truncate(time.Second)).Text, "bad")
	}
	if r.Counts.Folded+r.Counts.NotKept > 0 {
		add("Left out", views.Count(r.Counts.Folded), "counts folded, "+views.Count(r.Counts.NotKept).Text+" denials not kept", "warn")
	}
	add("Heap", bytesNumber(r.Process.Heap), views.Count(r.Process.Goroutines).Text+" goroutines", "")
	return n
}

// redisFacts adds the facts that a node reports about its limiter.
func redisFacts(r *nodes.Report, now time.Time, add func(name string, value views.Number, note, tone string)) {
	if r.Limiter != nodes.LimiterRedis {
		add("Limiter", views.Number{Text: "in this process", Exact: r.Limiter}, "", "")
		return
	}
	since := views.Duration(max(0, r.Ago(r.Redis.Since, now)).Truncate(time.Second))
	name := strings.TrimSpace("Redis " + r.Redis.Version)
	if !r.Redis.Reachable {
		add(name, views.Number{Text: "unreachable", Exact: "unreachable for " + since.Exact}, "breaker open for "+since.Text, "bad")
		return
	}
	if f := r.Redis.Refusal; !f.Since.IsZero() {
		refused := views.Duration(max(0, r.Ago(f.Since, now)).Truncate(time.Second))
		add(name, views.Number{Text: "refuses writes", Exact: f.Answer}, "for "+refused.Text+": "+f.Code, "bad")
	} else {
		add(name, views.Number{Text: "reachable", Exact: "for " + since.Exact}, "for "+since.Text, "")
	}
	if !r.Redis.LostAt.IsZero() {
		lost := views.Duration(max(0, r.Ago(r.Redis.LostAt, now)).Truncate(time.Second))
		add("Lost counts", views.Number{Text: lost.Text + " ago", Exact: r.Redis.Lost}, "", "bad")
	}
	if l := r.Redis.RoundTrips; l.Calls > 0 {
		add("Round trip", views.Duration(l.P50), "median, "+views.Duration(l.P99).Text+" p99", "")
	}
	if used, most := r.Redis.UsedMemory, r.Redis.MaxMemory; used > 0 {
		note := "no limit"
		if most > 0 {
			note = "of " + bytesNumber(most).Text
		}
		add("Redis memory", bytesNumber(used), note, "")
	}
	for i, k := range r.Redis.Keys {
		if i == 3 {
			break
		}
		add("Counters of "+k.Tenant, views.Count(k.Live), "about, of "+views.Count(k.Max).Text, "")
	}
	if n := r.Redis.BreakerOpened; n > 0 {
		add("Breaker", views.Count(n), "times open since the start", "")
	}
}

// bytesNumber returns a size for people.
func bytesNumber(n int64) views.Number {
	exact := views.Count(n).Exact + " bytes"
	size := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if size < 1000 {
			return views.Number{Text: strconv.FormatFloat(size, 'f', 0, 64) + " " + unit, Exact: exact}
		}
		size /= 1024
	}
	return views.Number{Text: strconv.FormatFloat(size, 'f', 1, 64) + " GiB", Exact: exact}
}
