package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

func TestOneTenantTakesHalfOfTheRoom(t *testing.T) {
	t.Parallel()
	var s sampler
	kept := map[uint32]int{}
	admit := func(at int64, tenant uint32, times int) {
		for range times {
			if s.admit(at, tenant) {
				kept[tenant]++
			}
		}
	}
	admit(100, 1, 500)
	for tenant := range uint32(20) {
		admit(100, 2+tenant, 7)
	}
	all := 0
	for tenant, n := range kept {
		all += n
		if tenant != 1 && n > fairShare {
			t.Errorf("tenant %d has %d", tenant, n)
		}
	}
	if kept[1] != commonRefusals || all != commonRefusals+fairRefusals {
		t.Errorf("kept %d of the flood, %d of all", kept[1], all)
	}
	if n := s.notKept.Load(); n != 500+20*7-100 {
		t.Errorf("%d are told as not kept", n)
	}
	admit(99, 1, 5) // late: as of the newest second, which is full
	if kept[1] != commonRefusals {
		t.Error("a second that is over gave room")
	}
	admit(101, 1, 500)
	if kept[1] != 2*commonRefusals {
		t.Errorf("kept %d of the flood in two seconds", kept[1])
	}
}

func TestRefusalsThatNobodyDrainsAreBounded(t *testing.T) {
	t.Parallel()
	var s sampler
	all := 0
	for at := range int64(100) {
		for tenant := range uint32(100) {
			if s.admit(at, tenant) {
				all++
			}
		}
	}
	if all != maxHeldRefusals || s.held.Load() != maxHeldRefusals {
		t.Errorf("%d kept, %d held", all, s.held.Load())
	}
}

func TestSamplerIsExactAmongManyGoroutines(t *testing.T) {
	t.Parallel()
	var s sampler
	var all sync.WaitGroup
	var kept [32]int
	for g := range kept {
		all.Go(func() {
			for range 100 {
				if s.admit(7, uint32(g)) {
					kept[g]++
				}
			}
		})
	}
	all.Wait()
	n := 0
	for _, k := range kept {
		n += k
	}
	if n > commonRefusals+fairRefusals || n < commonRefusals || int(s.notKept.Load()) != 3_200-n {
		t.Errorf("%d kept, %d not", n, s.notKept.Load())
	}
}

func TestAKeptRefusalHasItsExplanation(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("user", "/u/*", "", []string{"user"}, 2), spec("post", "/x", "", nil, 1))
	for _, redact := range []bool{false, true} {
		r := NewRecorder(Config{Node: "n1"})
		e := engineOf(fixedLimiter(), nil, r)
		s := &enforcement.Subject{Tenant: "acme", Number: 9, Plan: plan, Redact: redact}
		path := "/u/" + strings.Repeat("é", 2_000)
		d := decide(e, s, enforcement.Enforce, path, 3, "user", "u1", "ip", "192.0.2.1")
		if d.Allowed {
			t.Fatal("allowed")
		}
		pending, found := r.PendingRefusal(d.ID)
		if _, other := r.PendingRefusal([16]byte{1}); !found || other {
			t.Fatalf("found %v, another %v", found, other)
		}
		drained := r.drain()
		if len(drained.refusals) != 1 {
			t.Fatalf("%d refusals", len(drained.refusals))
		}
		got := drained.refusals[0]
		if a, b := fmt.Sprintf("%+v", pending), fmt.Sprintf("%+v", got); a != b {
			t.Errorf("pending %s\ndrained %s", a, b)
		}
		if _, again := r.PendingRefusal(d.ID); again || r.refusals.held.Load() != 0 {
			t.Error("it is still there")
		}
		if got.ID != d.ID || !got.At.Equal(at) || got.Tenant != 9 || got.TenantSlug != "acme" || got.Plan != "pro" || got.PlanVersion != 3 ||
			got.Route != "/u/*" || got.Reason != enforcement.ReasonCostExceedsQuota || got.Policy != "user" || got.Limit != "l1" ||
			got.RetryAfterMS != enforcement.Never || got.Method != "GET" || got.Cost != 3 || got.Node != "n1" || got.Redacted != redact {
			t.Errorf("%+v", got)
		}
		if len(got.Path) > maxRefusalPath || len(got.Path) < maxRefusalPath-4 || !strings.HasPrefix(path, strings.TrimSuffix(got.Path, "…")) {
			t.Errorf("path of %d bytes: %s", len(got.Path), got.Path)
		}
		want := []enforcement.Attribute{{Name: "user", Value: "u1"}, {Name: "ip", Value: "192.0.2.1"}}
		if redact {
			want = []enforcement.Attribute{{Name: "user"}, {Name: "ip"}}
		}
		if !slices.Equal(got.Attributes, want) {
			t.Errorf("attributes %v", got.Attributes)
		}
		if d.Check.Attributes[0].Value != "u1" {
			t.Error("the caller's check was changed")
		}
		limits := []RefusalLimit{{Policy: "user", Limit: "l1", Mode: "enforce", Algorithm: "fixed_window", Quota: 2, WindowMS: 60_000, Cost: 3, Remaining: 2, RetryAfterMS: enforcement.Never}}
		if !slices.Equal(got.Limits, limits) {
			t.Errorf("limits %+v", got.Limits)
		}
		policies := []RefusalPolicy{
			{Policy: "user", Mode: "enforce", Matches: true, Applies: true, Why: enforcement.WhyApplies},
			{Policy: "post", Mode: "enforce", Why: enforcement.WhyPath},
		}
		if !slices.Equal(got.Policies, policies) {
			t.Errorf("policies %+v", got.Policies)
		}
	}
}

func TestARefusalNamesWhatHasExceptions(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("p", "", "", []string{"user"}, 5))
	until := at.Add(time.Hour).UnixMicro()
	compiled, faults := enforcement.CompileExceptions(enforcement.ExceptionSpec{
		Deny:   []enforcement.ListEntry{{ID: "entry", Attribute: "user", Value: "bad"}},
		Blocks: []enforcement.Block{{ID: "block", Policy: "p", Key: []enforcement.Attribute{{Name: "user", Value: "held"}}, Until: until}},
		Overrides: []enforcement.Override{{
			ID: "override", Policy: "p", Attribute: "user", Value: "less", Factor: 200, Revision: 2, From: at.UnixMicro() - 1, Until: until,
		}},
	}, plan, 1)
	if len(faults) != 0 {
		t.Fatal(faults)
	}
	r := NewRecorder(Config{})
	e := engineOf(fixedLimiter(), nil, r)
	s := &enforcement.Subject{Number: 9, Plan: plan, Exceptions: compiled}
	decide(e, s, enforcement.Enforce, "/", 1, "user", "bad")
	decide(e, s, enforcement.Enforce, "/", 1, "user", "held")
	decide(e, s, enforcement.Enforce, "/", 2, "user", "less")
	got := r.drain().refusals
	if len(got) != 3 {
		t.Fatalf("%d refusals", len(got))
	}
	if got[0].ListEntry != "entry" || got[0].Policy != "" || got[0].Policies[0].Why != enforcement.WhyListed {
		t.Errorf("denied: %+v", got[0])
	}
	if got[1].Block != "block" || got[1].Policy != "p" || got[1].Policies[0].Block != "block" {
		t.Errorf("blocked: %+v", got[1])
	}
	if got[2].Policy != "p" || got[2].Limits[0].Override != "override" || got[2].Limits[0].Quota != 1 || got[2].Policies[0].Override != "override" {
		t.Errorf("overridden: %+v", got[2])
	}
}

// One in SampleAllowed allowed requests is recorded, with the limit that has the least left.
func TestAllowedRequestsAreSampled(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("user", "/u/*", "", []string{"user"}, 2), spec("all", "", "", nil, 1_000))
	for oneIn, want := range map[uint32]int{0: 0, 1: 8, 4: 2, 8: 1} {
		r := NewRecorder(Config{Node: "n1"})
		e := engineOf(fixedLimiter(), nil, r)
		s := &enforcement.Subject{Tenant: "acme", Number: 9, Plan: plan, SampleAllowed: oneIn}
		d := decide(e, s, enforcement.Peek, "/u/1", 1, "user", "u1")
		d.Check.Mode = enforcement.Enforce
		for n := range byte(8) {
			d.ID[12], d.ID[13], d.ID[14], d.ID[15] = 0, 0, 0, n
			r.Record(d)
		}
		kept := r.drain().refusals
		if len(kept) != want || r.allowed.held.Load() != 0 || r.refusals.held.Load() != 0 {
			t.Errorf("one in %d: %d kept, %d and %d held", oneIn, len(kept), r.allowed.held.Load(), r.refusals.held.Load())
		}
		for _, got := range kept {
			if !got.Allowed || got.Reason != enforcement.ReasonOK || got.Policy != "user" || got.Limit != "l1" || len(got.Limits) != 2 ||
				len(got.Policies) != 2 || !got.Policies[0].Applies || got.RetryAfterMS != 0 {
				t.Errorf("kept %+v", got)
			}
		}
	}
}

// Allowed requests have bounds of their own, and take no room of denials.
func TestAllowedRequestsLeaveRoomToDenials(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("user", "/u/*", "", []string{"user"}, 2))
	r := NewRecorder(Config{})
	s := &enforcement.Subject{Tenant: "acme", Number: 9, Plan: plan, SampleAllowed: 1}
	e := engineOf(fixedLimiter(), nil, nil)
	allowed, denied := decide(e, s, enforcement.Enforce, "/u/1", 1, "user", "u1"), decide(e, s, enforcement.Enforce, "/u/1", 3, "user", "u1")
	for range 500 {
		r.Record(allowed)
		r.Record(denied)
	}
	counts := map[bool]int{}
	for _, d := range r.drain().refusals {
		counts[d.Allowed]++
	}
	if counts[true] != commonRefusals+fairShare && counts[true] != commonRefusals || counts[false] != counts[true] {
		t.Errorf("%d allowed and %d denied are kept", counts[true], counts[false])
	}

	w := newWaiting()
	dropped := int64(0)
	for range maxWaitingRefusals {
		_, lost := w.take(&drained{refusals: []Refusal{{Allowed: true}}}, at)
		dropped += lost
	}
	if len(w.refusals) != maxWaitingRefusals/2 || dropped != maxWaitingRefusals-maxWaitingRefusals/2 {
		t.Errorf("%d allowed requests wait and %d are dropped, want half of the room", len(w.refusals), dropped)
	}
	if lost, _ := w.take(&drained{refusals: make([]Refusal, maxWaitingRefusals/2+1)}, at); lost != 1 {
		t.Errorf("%d denials are lost, want 1", lost)
	}
}

// A request outside the sample costs no memory.
func TestNoAllocationOutsideTheSample(t *testing.T) {
	plan := compile(t, spec("user", "/u/*", "", []string{"user"}, 1<<30))
	r := NewRecorder(Config{})
	s := &enforcement.Subject{Tenant: "acme", Number: 9, Plan: plan, SampleAllowed: 1_000_000}
	d := decide(engineOf(fixedLimiter(), nil, nil), s, enforcement.Enforce, "/u/1", 1, "user", "u1")
	d.ID[15], d.ID[12] = 1, 0
	if inSample(d, s.SampleAllowed) {
		d.ID[15] = 2
	}
	r.Record(d)
	if n := testing.AllocsPerRun(100, func() { r.Record(d) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
