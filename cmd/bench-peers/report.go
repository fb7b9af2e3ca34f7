package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A part is the text between two markers in a page of docs/. A run of the command can write a part
// only if it has measured all groups of the part.
type part struct {
	page      string
	beginMark string
	groups    []string
	targets   []target
	tables    func(*results, *strings.Builder)
}

// parts contains all parts of the report, in their order in the pages.
var parts = []part{
	{
		performancePage, "<!-- make bench-peers writes from here -->",
		[]string{"http", "rate", "batch", "redis", "memory"},
		targets, (*results).writeTables,
	},
	{performancePage, "<!-- make bench-peers ONLY=grpc writes from here -->", []string{"grpc"}, grpcTargets, (*results).writeGRPC},
	{performancePage, "<!-- make bench-peers ONLY=overload writes from here -->", []string{"overload"}, overloadTargets, (*results).writeOverload},
	{
		productionPage, "<!-- make bench-peers writes from here -->",
		[]string{"http", "rate", "batch", "redis", "memory"},
		nil, (*results).writeSizing,
	},
	{waysPage, "<!-- make bench-ways writes from here -->", []string{groupWays}, nil, (*results).writeWays},
}

// Pages of docs/ that the command writes.
const (
	performancePage = "performance.md"
	productionPage  = "production.md"
	waysPage        = "gateways.md"
)

// endMark is the marker at the end of each part.
const endMark = "<!-- to here -->"

// replaceResult replaces the text between beginMark and endMark in the file page by result.
func replaceResult(page, beginMark, result string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !found || !ended {
		return fmt.Errorf("%s has not the markers %s and %s", page, beginMark, endMark)
	}
	if err := os.WriteFile(page, []byte(before+beginMark+"\n\n"+result+"\n"+endMark+after), 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	progress("wrote %s", page)
	return nil
}

// markdown returns the text of a part in Markdown: the machine, the targets, and the tables.
func (r *results) markdown(o *options, p *part) string {
	var b strings.Builder
	r.writeMachine(&b, o, p)
	if len(p.targets) > 0 {
		b.WriteString("\n")
		r.writeTargets(&b, p.targets)
	}
	p.tables(r, &b)
	return b.String()
}

// writeTables writes the tables of all groups in the first part.
func (r *results) writeTables(b *strings.Builder) {
	if r.http != nil {
		b.WriteString("\n### Single checks, as fast as the answers come\n\n" +
			"× envoy and × no-op are ratios of req/s. Times are processor time for each check.\n" +
			"The last column counts checks that were not allowed by their limit.\n")
		for _, connections := range connectionCounts {
			fmt.Fprintf(b, "\n%d connections:\n\n", connections)
			r.writeServices(b, r.http[connections])
		}
	}
	if r.rate != nil {
		fmt.Fprintf(b, "\n### Latency at %d requests/s on %d connections\n\n", offeredRate, offeredConnections)
		r.writeRate(b)
	}
	if r.batch != nil {
		fmt.Fprintf(b, "\n### %d checks in a request, 64 connections\n\n", batchSize)
		r.writeBatch(b)
	}
	if r.onRedis != nil {
		b.WriteString("\n### Libraries on Redis\n\nµs of wall time for each check, over all goroutines.\n" +
			"The last columns are for 64 goroutines and 100,000 keys.\n\n")
		writeLibraries(b, r.onRedis, 1000, []string{engineRedis, redisRate, throttledGCRA, ulule, rueidisLimit}, true)
		fmt.Fprintf(b, "\nRedis' own time for a check (commandstats): %s µs for %s, %s µs for %s.\n",
			number(r.scripts[scriptBatch].median(redisTime)), scriptBatch, number(r.scripts[scriptPlain].median(redisTime)), scriptPlain)
	}
	if r.inMemory != nil {
		b.WriteString("\n### Libraries in process\n\nns of wall time for each check, over all goroutines.\n" +
			"Allocations are for 64 goroutines and 100,000 keys.\n\n")
		writeLibraries(b, r.inMemory, 1, []string{
			limiterMemory, engineMemory, rateSharded, rateBare, goLimiter, throttledMemory, ululeMemory,
		}, false)
		b.WriteString("\n")
		head(b, "bytes for each of 1,000,000 keys of 24 bytes")
		for _, name := range slices.Sorted(maps.Keys(r.bytes)) {
			row(b, name, number(r.bytes[name]))
		}
	}
}

// busy is the fraction of a core, or of Redis, that an installation may use. The table of sizes
// uses it.
const busy = 0.7

// writeSizing writes how many checks per second one core of a node and one Redis can process. It computes them from the
// processor times with 64 connections.
func (r *results) writeSizing(b *strings.Builder) {
	b.WriteString("\n")
	head(b, "processor time of the node for a check, µs", "of Redis, µs", "one core at 70 % carries", "one Redis at 70 % carries")
	carries := func(micros float64) string { return number(busy*1e6/micros) + " checks/s" }
	for _, mode := range []struct{ title, service string }{
		{"counters in the node", embedded}, {"exact on Redis", exactTCP}, {"leased on Redis", leased},
	} {
		all := r.http[64][mode.service]
		node, redis := all.median(server), all.median(redisTime)
		if mode.service == embedded {
			row(b, mode.title, number(node), "–", carries(node), "–")
			continue
		}
		row(b, mode.title, number(node), number(redis), carries(node), carries(redis))
	}
}

func row(b *strings.Builder, cells ...string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }

// head writes the head of a Markdown table. The first column has no title.
func head(b *strings.Builder, titles ...string) {
	row(b, append([]string{""}, titles...)...)
	b.WriteString("|---" + strings.Repeat("|---", len(titles)) + "|\n")
}

// number formats a number with two or three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case a >= 100_000:
		return fmt.Sprintf("%.0fk", v/1000)
	case a >= 10_000:
		return fmt.Sprintf("%.1fk", v/1000)
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (r *results) writeMachine(b *strings.Builder, o *options, p *part) {
	m := r.machine
	fmt.Fprintf(b, "Measured %s on %d processors (%s, %s) with %s",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), m.cpu, m.kernel, runtime.Version())
	command := fmt.Sprintf("bench-peers ROUNDS=%d SECONDS=%g ONLY=%s", o.rounds, o.seconds, strings.Join(o.groups, ","))
	if p.page == waysPage {
		command = fmt.Sprintf("bench-ways ROUNDS=%d SECONDS=%g", o.rounds, o.seconds)
	} else {
		fmt.Fprintf(b, " and Redis %s", m.redis)
	}
	fmt.Fprintf(b, "; Headgate at %s.\nCommand: `make %s`, in %s: rounds after a warm-up round, seconds for each %s in a round.\n",
		m.commit, command, r.took.Round(time.Second), p.measures())
	fmt.Fprintf(b, "Meanwhile %s.\n", r.others)
	switch p.page {
	case waysPage:
		fmt.Fprintf(b, "Gateways: %s.\n", strings.Join(r.gateways, ", "))
		return
	case productionPage:
		return
	}
	if r.gogc != "" {
		fmt.Fprintf(b, "GOGC of Headgate, the no-op and EVALSHA: %s; of the others: as they come.\n", r.gogc)
	}
	fmt.Fprintf(b, "Peers: %s.\n", strings.Join(peerVersions(), ", "))
	if len(r.notBuilt) > 0 {
		fmt.Fprintf(b, "Not built in this version: %s.\n", strings.Join(r.notBuilt, ", "))
	}
}

// measures returns what the part compares.
func (p *part) measures() string {
	if p.page == waysPage {
		return "load on each way"
	}
	return "service"
}

// peerVersions returns the versions of the limiters that Headgate is compared with: the versions in
// go.mod, and the version of envoyproxy/ratelimit.
func peerVersions() []string {
	_, version, _ := strings.Cut(envoyPackage, "@")
	list := []string{"envoyproxy/ratelimit " + version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return list
	}
	for _, m := range info.Deps {
		for _, peer := range []string{
			"go-redis/redis_rate", "throttled/throttled", "ulule/limiter", "rueidis/rueidislimiter", "sethvargo/go-limiter", "golang.org/x/time",
			"labstack/echo", "redis/go-redis", "google.golang.org/grpc",
		} {
			if strings.Contains(m.Path, peer) && !strings.Contains(m.Path, "extra") {
				list = append(list, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
			}
		}
	}
	return list
}

func (r *results) writeTargets(b *strings.Builder, targets []target) {
	head(b, "target", "goal", "measured", "")
	for _, t := range targets {
		sign := "≤"
		if t.atLeast {
			sign = "≥"
		}
		measured, verdict := "-", "not measured"
		if v := t.measured(r); !math.IsNaN(v) {
			measured, verdict = number(v)+" "+t.unit, "**not met**"
			if t.met(v) {
				verdict = "met"
			}
		}
		row(b, t.id, t.text, strings.TrimSpace(sign+" "+number(t.goal)+" "+t.unit), strings.TrimSpace(measured), verdict)
	}
}

// Columns that several tables have.
var times = []string{"server µs", "Redis µs", "generator µs"}

const latencies = "p50 / p99 ms"

func (s series) latencies() string { return number(s.median(p50)) + " / " + number(s.median(p99)) }

func (s series) times() []string {
	return []string{number(s.median(server)), number(s.median(redisTime)), number(s.median(generator))}
}

func (r *results) writeServices(b *strings.Builder, of map[string]series) {
	head(b, slices.Concat([]string{"req/s", "× envoy", "× no-op", latencies}, times, []string{"allocations", "not allowed"})...)
	for _, s := range r.services {
		all := of[s.name]
		against := func(base string) string { return number(pair(of, perSecond, s.name, base, ratio)) }
		row(b, slices.Concat([]string{s.name, number(all.median(perSecond)), against(envoy), against(noop), all.latencies()}, all.times(),
			[]string{number(all.median(allocations)), percent(all)})...)
	}
}

// percent returns a text with the percentages of the checks that were degraded, got a 503, or
// failed.
func percent(all series) string {
	var parts []string
	for _, kind := range []struct {
		name string
		v    value
	}{
		{"degraded", func(s slot) float64 { return s.degraded }},
		{"503", func(s slot) float64 { return s.unavailable }},
		{"failed", func(s slot) float64 { return s.failed }},
	} {
		if v := all.mean(kind.v); v > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2g%%", kind.name, 100*v))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// mean returns the mean of the measurement v over all rounds. It is used for events that happen in
// few rounds, because the median of their numbers would be 0.
func (s series) mean(v value) float64 {
	sum := 0.0
	for _, one := range s {
		sum += v(one)
	}
	return sum / float64(len(s))
}

func (r *results) writeRate(b *strings.Builder) {
	head(b, slices.Concat([]string{latencies, "added p50 ms", "added p99 ms"}, times)...)
	for _, s := range r.services {
		all := r.rate[s.name]
		added := func(v value) string { return number(pair(r.rate, v, s.name, noop, difference)) }
		row(b, slices.Concat([]string{s.name, all.latencies(), added(p50), added(p99)}, all.times())...)
	}
}

func (r *results) writeBatch(b *strings.Builder) {
	head(b, slices.Concat([]string{"checks/s", "× single", "× no-op", latencies}, times)...)
	for _, name := range slices.Sorted(maps.Keys(r.batch)) {
		all := r.batch[name]
		against := func(base string) string { return number(pair(r.batch, perSecond, name, base, ratio)) }
		row(b, slices.Concat([]string{
			name, number(all.median(perSecond)), against(single(exactTCP)), against(noop), all.latencies(),
		}, all.times())...)
	}
}

// writeLibraries writes a table row for each library, with its time per check in each spread. It
// divides the times, which are in nanoseconds, by unit. redis is set if the rows also have columns
// about Redis.
func writeLibraries(b *strings.Builder, all map[spread]map[string]series, unit float64, names []string, redis bool) {
	var titles []string
	for _, how := range spreads {
		titles = append(titles, how.String())
	}
	if redis {
		titles = append(titles, "checks/s", "own µs", "Redis µs")
	}
	head(b, append(titles, "allocations")...)
	for _, name := range names {
		cells := []string{name}
		for _, how := range spreads {
			cells = append(cells, number(all[how][name].median(nanos)/unit))
		}
		s := all[keys64][name]
		if redis {
			cells = append(cells, number(s.median(perSecond)), number(s.median(server)), number(s.median(redisTime)))
		}
		row(b, append(cells, number(s.median(allocations)))...)
	}
}
