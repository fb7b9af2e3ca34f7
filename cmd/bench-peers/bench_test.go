package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

func rates(all ...float64) (s series) {
	for _, v := range all {
		s = append(s, slot{perSecond: v})
	}
	return s
}

// A machine that becomes slow in one round changes no ratio.
func TestRatiosAreTakenWithinARound(t *testing.T) {
	t.Parallel()
	ours, base := rates(200, 20, 210), rates(100, 10, 100)
	if got := ratio(perSecond, ours, base); got != 2 {
		t.Errorf("the ratio is %v, want 2", got)
	}
	if got := difference(perSecond, ours, base); got != 100 {
		t.Errorf("the difference is %v, want 100", got)
	}
	if got := ratio(perSecond, ours, base[:2]); !math.IsNaN(got) {
		t.Errorf("without one round: %v", got)
	}
	for want, all := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 3, 2}, 7: {math.NaN(), 7, math.Inf(1)}} {
		if got := median(all); got != want {
			t.Errorf("the median of %v is %v, want %v", all, got, want)
		}
	}
}

func TestRotationStartsEachRoundWithAnother(t *testing.T) {
	t.Parallel()
	var order []string
	take := func(name string) contender {
		return contender{name, func(context.Context) (slot, error) {
			order = append(order, name)
			return slot{perSecond: float64(len(order))}, nil
		}}
	}
	b := &bench{options: options{rounds: 2}}
	found, err := b.rotate(t.Context(), "test", []contender{take("a"), take("b"), take("c")})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abcbcacab" {
		t.Errorf("the order is %s", got)
	}
	// The first round does not count.
	if got := found["a"]; len(got) != 2 || got[0].perSecond != 6 || got[1].perSecond != 8 {
		t.Errorf("a has %+v", got)
	}
	failing := contender{"d", func(context.Context) (slot, error) { return slot{}, errors.New("broken") }}
	if _, err := b.rotate(t.Context(), "test", []contender{failing}); err == nil || !strings.Contains(err.Error(), "d: broken") {
		t.Errorf("a contender that fails: %v", err)
	}
}

// The table has a row for every target of the design, measured or not.
func TestTargets(t *testing.T) {
	t.Parallel()
	r := &results{http: map[int]map[string]series{
		64: {exactTCP: rates(40, 42, 38), envoy: rates(10, 10, 10), noop: rates(50, 60, 55)},
	}}
	text := r.markdown(&options{groups: allGroups}, &parts[0])
	for _, want := range []string{
		"| T1 | req/s, exact, 64 connections, against envoy | ≥ 3.50 × | 4 × | met |",
		"| T5 | req/s, exact, 64 connections, against the no-op | ≥ 0.80 × | 0.70 × | **not met** |",
		"| T6 | req/s, leased, 64 connections, against the no-op | ≥ 0.90 × | - | not measured |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the result lacks %q:\n%s", want, text)
		}
	}
	var ids []string
	for _, target := range targets {
		if !slices.Contains(ids, target.id) {
			ids = append(ids, target.id)
		}
	}
	text = (&results{grpc: map[int]map[string]series{
		1: {exactTCP: rates(31, 33, 62), envoyGRPC: rates(10, 10, 20)}, 10: {exactTCP: rates(5, 6, 7)},
	}}).markdown(&options{groups: []string{"grpc"}}, &parts[1])
	for _, want := range []string{
		"| - | calls/s of ShouldRateLimit, exact, 1 descriptor, against envoy | ≥ 3 × | 3.10 × | met |",
		"| - | the same, 10 descriptors | ≥ 3 × | - | not measured |",
		"| headgate, exact on Redis | 33 | 3.10 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the result lacks %q:\n%s", want, text)
		}
	}
	text = (&results{overload: map[string]series{
		underLoad(exactTCP, 64): rates(10, 20, 30), underLoad(exactTCP, 1000): rates(7, 18, 27),
		beside(embedded, false): {{p99: 10}, {p99: 20}}, beside(embedded, true): {{p99: 11}, {p99: 24}},
	}}).markdown(&options{groups: []string{"overload"}}, &parts[2])
	for _, want := range []string{
		"| F-O1 | checks/s, exact, 1,000 connections, against 64 | ≥ 0.80 × | 0.90 × | met |",
		"| F-O2 | the same, embedded | ≤ 1.20 × | 1.15 × | met |",
		"| headgate, exact on Redis, 1000 connections | 18 | 0.90 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the result lacks %q:\n%s", want, text)
		}
	}
	if got := strings.Join(ids, " "); got != "T1 T2 T3 T4 T5 T6 T7 T8 T9 T10 T11 T12 T13 T14 T15 T16 T17 T18 T19 T20 T21 -" {
		t.Errorf("targets %s", got)
	}
}

func TestResultReplacesTheOneBefore(t *testing.T) {
	t.Parallel()
	page, mark := filepath.Join(t.TempDir(), "page.md"), parts[1].beginMark
	for _, result := range []string{"one\n", "two\n"} {
		if _, err := os.Stat(page); err != nil {
			if err := os.WriteFile(page, []byte("above\n"+parts[0].beginMark+"\n"+endMark+"\nbetween\n"+mark+"\n"+endMark+"\nbelow\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := replaceResult(page, mark, result); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(page)
		if want := "above\n" + parts[0].beginMark + "\n" + endMark + "\nbetween\n" + mark + "\n\n" + result + "\n" + endMark + "\nbelow\n"; err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(page, []byte("no markers"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replaceResult(page, mark, "three"); err == nil {
		t.Error("a page without markers was written")
	}
}

// A run of some groups writes only the parts whose groups all ran.
func TestReportWritesWholeParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		groups   []string
		complete bool
		written  []bool
	}{
		{allGroups, true, []bool{true, true, true, true, false}},
		{allGroups, false, []bool{false, false, false, false, false}},
		{[]string{"grpc"}, true, []bool{false, true, false, false, false}},
		{[]string{"http", "grpc"}, true, []bool{false, true, false, false, false}},
		{[]string{"overload"}, true, []bool{false, false, true, false, false}},
		{[]string{"http"}, true, []bool{false, false, false, false, false}},
		{[]string{groupWays}, true, []bool{false, false, false, false, true}},
	} {
		docs := t.TempDir()
		pages := map[string]string{}
		for _, p := range parts {
			pages[p.page] += p.beginMark + "\n" + endMark + "\n"
		}
		for name, text := range pages {
			if err := os.WriteFile(filepath.Join(docs, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := &bench{options: options{groups: c.groups, write: true, docs: docs}}
		if err := b.report(c.complete); err != nil {
			t.Fatal(err)
		}
		for i, want := range c.written {
			if got := strings.Contains(section(t, docs, parts[i]), "Measured "); got != want {
				t.Errorf("groups %v, complete %t: part %d is written: %t", c.groups, c.complete, i, got)
			}
		}
	}
}

// section returns the text of a part in its page.
func section(t *testing.T, docs string, p part) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, p.page))
	if err != nil {
		t.Fatal(err)
	}
	_, after, begins := strings.Cut(string(text), p.beginMark)
	found, _, ends := strings.Cut(after, endMark)
	if !begins || !ends || strings.Contains(found, "writes from here") {
		t.Errorf("%s of %s begins: %t, ends: %t", p.beginMark, p.page, begins, ends)
	}
	return found
}

// A message has the number of another user in each of its descriptors, and the client reads what
// grpc-go encodes.
func TestGRPCMessages(t *testing.T) {
	t.Parallel()
	m, err := newMessage(3)
	if err != nil {
		t.Fatal(err)
	}
	m.fill(m.text, rand.New(rand.NewPCG(1, 2)))
	var request ratelimitv3.RateLimitRequest
	if err := proto.Unmarshal(m.text[5:], &request); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, d := range request.GetDescriptors() {
		seen = append(seen, d.GetEntries()[0].GetKey()+"="+d.GetEntries()[0].GetValue())
	}
	if want := regexp.MustCompile(`^(user=u0000\d{4} ){3}$`); !want.MatchString(strings.Join(seen, " ") + " ") {
		t.Errorf("descriptors %q", seen)
	}
	statuses := make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, 3)
	for i := range statuses {
		statuses[i] = &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK, LimitRemaining: 7}
	}
	text, err := proto.Marshal(&ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OVER_LIMIT, Statuses: statuses, RawBody: []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAnswer(text); err != nil || got != (grpcAnswer{ratelimitv3.RateLimitResponse_OVER_LIMIT, 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := readAnswer(text[:len(text)-1]); err == nil {
		t.Error("a part of an answer was read")
	}
}

// The pages have the markers between which a run writes.
func TestPagesHaveTheMarkers(t *testing.T) {
	t.Parallel()
	for _, p := range parts {
		section(t, filepath.Join("..", "..", "docs"), p)
	}
}

func TestProcessorTimeIsThatOfTheProcess(t *testing.T) {
	t.Parallel()
	for before := ownProcessor(); ownProcessor() < before+0.05; {
		continue
	}
	got, err := processor(os.Getpid())
	if own := ownProcessor(); err != nil || got <= 0 || got > own+0.03 {
		t.Errorf("/proc says %v s, %v; the system call says %v", got, err, own)
	}
}
