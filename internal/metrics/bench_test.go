package metrics

import (
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// BenchmarkRecord is what counting one decision adds to a check.
func BenchmarkRecord(b *testing.B) {
	plans := map[string]*enforcement.Plan{
		"1 policy": compile(b, spec("user", "/u/*", "", []string{"user"}, 1<<30)),
		"3 policies": compile(b, spec("all", "", "", nil, 1<<30), spec("user", "/u/*", "", []string{"user"}, 1<<30),
			spec("ip", "/u/*", "", []string{"ip"}, 1<<30)),
	}
	for _, name := range []string{"1 policy", "3 policies"} {
		s := &enforcement.Subject{Tenant: "acme", Number: 1, Plan: plans[name]}
		e := engineOf(fixedLimiter(), nil, nil)
		allowed := decide(e, s, enforcement.Enforce, "/u/1", 1, "user", "u1", "ip", "192.0.2.1")
		refused := decide(e, s, enforcement.Enforce, "/u/1", 1<<30, "user", "u1", "ip", "192.0.2.1")
		if !allowed.Allowed || refused.Allowed {
			b.Fatal("the decisions are other ones")
		}
		b.Run(name+"/allowed", func(b *testing.B) { record(b, allowed) })
		sampling := *s
		sampling.SampleAllowed = 1_000
		outside := decide(e, &sampling, enforcement.Enforce, "/u/1", 1, "user", "u1", "ip", "192.0.2.1")
		for inSample(outside, sampling.SampleAllowed) {
			outside.ID[15]++
		}
		b.Run(name+"/allowed, outside the sample", func(b *testing.B) { record(b, outside) })
		silent := *s
		silent.NoTrace = true
		untraced := decide(e, &silent, enforcement.Enforce, "/u/1", 1, "user", "u1", "ip", "192.0.2.1")
		b.Run(name+"/allowed, without a trace", func(b *testing.B) { record(b, untraced) })
		b.Run(name+"/allowed, in the trace", func(b *testing.B) {
			r := NewRecorder(Config{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Record(allowed)
				if i%256 == 255 { // as a drain does, so that the key stays in the sample
					for _, s := range r.shards {
						if s.content.last != nil {
							s.content.last.trace.reset()
						}
					}
				}
			}
		})
		b.Run(name+"/refused", func(b *testing.B) { record(b, refused) })
		b.Run(name+"/allowed, parallel", func(b *testing.B) {
			r := NewRecorder(Config{})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r.Record(allowed)
				}
			})
		})
	}
}

func record(b *testing.B, d *enforcement.Decision) {
	r := NewRecorder(Config{})
	b.ReportAllocs()
	for b.Loop() {
		r.Record(d)
	}
}

// BenchmarkDrain measures the start of a flush of 1,000 tenants with three policies and a
// few keys each.
func BenchmarkDrain(b *testing.B) {
	plan := compile(b, spec("all", "", "", nil, 1<<30), spec("user", "/u/*", "", []string{"user"}, 1<<30), spec("ip", "/u/*", "", []string{"ip"}, 1<<30))
	e := engineOf(fixedLimiter(), nil, nil)
	var decisions []*enforcement.Decision
	for tenant := range uint32(1_000) {
		s := &enforcement.Subject{Number: tenant + 1, Plan: plan}
		for user := range 5 {
			decisions = append(decisions, decide(e, s, enforcement.Enforce, "/u/1", 1, "user", string(rune('a'+user)), "ip", "192.0.2.1"))
		}
	}
	r := NewRecorder(Config{})
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for _, d := range decisions {
			r.Record(d)
		}
		b.StartTimer()
		r.drain()
	}
}
