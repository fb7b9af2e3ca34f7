package metrics

// For tests past the package, over a real store.
var (
	MergeSketches = mergeSketches
	BucketEnd     = func(v int64) int64 { return logBounds[bucketOf(v)] }
)

// TopDoc is a sketch of keys of one policy that counts by user, with room for capacity.
func TopDoc(capacity int, tenant uint32, users []string) []byte {
	t := newTopKeys(capacity)
	for _, user := range users {
		text := topText{tenant: tenant, policy: "p", names: []string{"user"}, values: []topValue{{text: user}}}
		if e := t.add(text.id(), 1); e != nil {
			e.text = text
		}
	}
	return t.encode()
}

// TenantsDoc is a sketch of tenants.
func TenantsDoc(counts map[uint32]int64) []byte {
	t := newTopKeys(topCapacity)
	for tenant, n := range counts {
		text := topText{tenant: tenant}
		if e := t.add(text.id(), n); e != nil {
			e.text = text
		}
	}
	return t.encode()
}

// RetryDoc and LatencyDoc are histograms of values.
func RetryDoc(never int64, values ...int64) []byte {
	r := retryTimes{never: never}
	for _, v := range values {
		r.histogram.add(v, 1)
	}
	return r.encode()
}

func LatencyDoc(shared, local []int64) []byte {
	var l latencies
	for _, v := range shared {
		l.shared.add(v, 1)
	}
	for _, v := range local {
		l.local.add(v, 1)
	}
	return l.encode()
}
