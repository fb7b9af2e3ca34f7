package proxytest

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/deploy/recipes"
)

// A local limit of Envoy depends on the plan that the metadata of ext_authz names, and headers have other members of the
// metadata.
func TestEnvoyReadsTheMetadata(t *testing.T) {
	t.Parallel()
	headgate, services, upstream := freeAddress(t), freeAddress(t), upstreamOf(t)
	startHeadgate(t, headgate, services, "HEADGATE_BOOTSTRAP_KEY="+operatorKey, "HEADGATE_SAMPLE=false")
	key := limitItems(t, headgate, 100)
	url := gateway{Recipe: recipes.Named("Envoy ext_authz")}.serve(t, services, upstream, key,
		"routes: [{match", `response_headers_to_add:
                        - header: {key: x-tenant, value: "%DYNAMIC_METADATA(envoy.filters.http.ext_authz:tenant)%"}
                        - header: {key: x-plan, value: "%DYNAMIC_METADATA(envoy.filters.http.ext_authz:plan)%"}
                        - header: {key: x-decision, value: "%DYNAMIC_METADATA(envoy.filters.http.ext_authz:decision_id)%"}
                        - header: {key: x-limits, value: "%DYNAMIC_METADATA(envoy.filters.http.ext_authz:limits)%"}
                      rate_limits:
                        - actions: [{metadata: {descriptor_key: plan, metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: plan}]}}}]
                      routes: [{match`,
		"- name: envoy.filters.http.router", `- name: envoy.filters.http.local_ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
                      stat_prefix: plan
                      token_bucket: {max_tokens: 1000, tokens_per_fill: 1000, fill_interval: 1s}
                      filter_enabled: {default_value: {numerator: 100}}
                      filter_enforced: {default_value: {numerator: 100}}
                      descriptors: [{entries: [{key: plan, value: quota}], token_bucket: {max_tokens: 2, tokens_per_fill: 2, fill_interval: 3600s}}]
                  - name: envoy.filters.http.router`)
	for i := range 3 {
		a, text := send(t, url+"/v1/items", "x")
		if i == 2 {
			if a.StatusCode != 429 || a.Header.Get("Retry-After") != "" { // a denial of Headgate would have it
				t.Errorf("the local limit: %d %q %v", a.StatusCode, text, a.Header)
			}
			continue
		}
		if a.StatusCode != 200 || a.Header.Get("X-Tenant") != "acme" || a.Header.Get("X-Plan") != "quota" || len(a.Header.Get("X-Decision")) != 36 ||
			!strings.Contains(a.Header.Get("X-Limits"), `"remaining":`) {
			t.Fatalf("%d: %d %q %v", i, a.StatusCode, text, a.Header)
		}
	}
}
