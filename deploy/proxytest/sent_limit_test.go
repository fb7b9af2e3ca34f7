package proxytest

import (
	"slices"
	"testing"
)

// Envoy sends the limit that its metadata has, and Headgate decides with it if the key is the operator's. The limit of the
// plan has its own counter. With the key of the tenant, the call fails.
func TestEnvoySendsALimit(t *testing.T) {
	t.Parallel()
	headgate, services, upstream := freeAddress(t), freeAddress(t), upstreamOf(t)
	startHeadgate(t, headgate, services, "HEADGATE_BOOTSTRAP_KEY="+operatorKey, "HEADGATE_SAMPLE=false")
	key := limitItems(t, headgate, 4)
	tenant := []string{"domain: edge", "domain: acme", "failure_mode_deny: false", "failure_mode_deny: true"}
	limited := append([]string{
		"http_filters:\n", `http_filters:
                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata: [{metadata_namespace: customer, value: {limit: {requests_per_unit: 3, unit: YEAR}}}]
`,
		"- actions:\n", `- limit: {dynamic_metadata: {metadata_key: {key: customer, path: [{key: limit}]}}}
                          actions:
`,
	}, tenant...)
	statuses := func(origin string, n int) (all []int) {
		for range n {
			a, _ := send(t, origin+"/v1/items", "x")
			all = append(all, a.StatusCode)
		}
		return all
	}
	for _, step := range []struct {
		what, origin string
		want         []int
	}{
		{"the limit of the metadata", envoyRateLimit.serve(t, services, upstream, operatorKey, limited...), []int{200, 200, 200, 429, 429}},
		{"the limit of the plan", envoyRateLimit.serve(t, services, upstream, operatorKey, tenant...), []int{200, 200, 200, 200, 429}},
		{"the key of the tenant", envoyRateLimit.serve(t, services, upstream, key, limited...), []int{500, 500}},
	} {
		if got := statuses(step.origin, len(step.want)); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
}
