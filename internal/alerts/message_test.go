package alerts

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/headgate/headgate/internal/problem"
)

// The library of the specification accepts our signatures, with each secret of two.
func TestSignaturesVerify(t *testing.T) {
	t.Parallel()
	now, body, secret, former := time.Now(), []byte(`{"type":"alert.test"}`), NewSecret(), NewSecret()
	header := http.Header{}
	header.Set(standardwebhooks.HeaderWebhookID, "01939c1e-0000-7000-8000-000000000001")
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, Sign(header.Get(standardwebhooks.HeaderWebhookID), now, body, secret, former, "whsec_%"))
	for _, s := range []string{secret, former} {
		hook, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify(body, header); err != nil {
			t.Error(err)
		}
		if hook.Verify([]byte(`{"type":"alert.tesu"}`), header) == nil {
			t.Error("another body has the same signature")
		}
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1",
		"0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1", "fe80::1", "fc00::1", "fd12::1", "ff02::1",
		"::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001::1", "2001:db8::1", "fec0::1",
	} {
		if reachable(netip.MustParseAddr(address), nil) {
			t.Errorf("%s is reachable", address)
		}
	}
	for _, address := range []string{"8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"} {
		if !reachable(netip.MustParseAddr(address), nil) {
			t.Errorf("%s is not reachable", address)
		}
	}
	allowed := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	if !reachable(netip.MustParseAddr("10.1.2.3"), allowed) || !reachable(netip.MustParseAddr("::ffff:10.1.2.3"), allowed) ||
		reachable(netip.MustParseAddr("10.2.0.1"), allowed) {
		t.Error("the allowed network is wrong")
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	i := Incident{
		ID: "i", RuleID: "r", BeganAt: began, Peak: 41.26, Detail: "Limit l1 of policy logins has 5 of 100 left.",
		Rule: Document{Name: "Acme is limited", Metric: DenialRate, Tenant: "acme", Policy: "logins", Window: 5 * time.Minute, Threshold: 20, Recovery: 10},
	}
	m := Messenger{URL: "https://headgate.example"}
	var got body
	if err := json.Unmarshal(m.Body(Webhook, EventBegan, &i, 33.333, began), &got); err != nil {
		t.Fatal(err)
	}
	want := "Alert: Acme is limited. The 429 rate of policy logins of tenant acme in the last 5 min is 33.3%; the threshold is 20%."
	if got.Type != EventBegan || got.Data.Summary != want || got.Data.Page != "https://headgate.example/alerts/i" || got.Data.BeganAt != instant(began) {
		t.Errorf("%+v", got)
	}
	i.EndedAt = began.Add(90 * time.Minute)
	var slack struct{ Text string }
	if err := json.Unmarshal(m.Body(Slack, EventResolved, &i, 0, began), &slack); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(slack.Text, "Resolved: Acme is limited. ") || !strings.Contains(slack.Text, " is 0%; the alert lasted 1 h 30 min.") {
		t.Error(slack.Text)
	}
}

// docs/alerts.md shows a message as it is sent, but for its ids.
func TestMessageOfTheDocuments(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	at := time.Date(2026, 11, 22, 12, 0, 35, 0, time.UTC)
	i := Incident{
		ID: "…", RuleID: "…", BeganAt: at, Peak: 29,
		Rule: Document{Name: "Acme is limited", Metric: DenialRate, Tenant: "acme", Window: 5 * time.Minute, Threshold: 20},
	}
	var want, got any
	if err := json.Unmarshal(shown[1], &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(Messenger{}.Body(Webhook, EventBegan, &i, 29, at), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the message is not that of the page (-page +message):\n%s", diff)
	}
}

// Every fault names its field, and a rule with a good form has none.
func TestValidate(t *testing.T) {
	t.Parallel()
	good := Document{Name: "a", Metric: DenialRate, Window: time.Minute, Threshold: 1}
	for _, test := range []struct {
		fault    string
		tenant   bool
		document func(*Document)
	}{
		{"", false, func(*Document) {}},
		{"", true, func(*Document) {}},
		{"", true, func(d *Document) { d.Metric, d.Window, d.Policy = QuotaUsed, 0, "logins" }},
		{"", false, func(d *Document) { d.Policy = "logins" }},
		{"", false, func(d *Document) { d.EachTenant, d.Policy = true, "logins" }},
		{"", false, func(d *Document) { d.Metric, d.Window, d.EachTenant = QuotaUsed, 0, true }},
		{"", false, func(d *Document) { d.Metric, d.Window, d.EachTenant, d.Threshold = NearLimit, 0, true, 80 }},
		{"/each_tenant", true, func(d *Document) { d.EachTenant = true }},
		{"/each_tenant", false, func(d *Document) { d.Metric, d.Window, d.EachTenant = SilentNodes, 0, true }},
		{"/tenant", false, func(d *Document) { d.Tenant, d.EachTenant = "acme", true }},
		{"/name", false, func(d *Document) { d.Name = " " }},
		{"/metric", false, func(d *Document) { d.Metric = "" }},
		{"/metric", true, func(d *Document) { d.Metric = NodeAlarms }},
		{"/tenant", true, func(d *Document) { d.Tenant = "acme" }},
		{"/tenant", false, func(d *Document) { d.Metric, d.Window = QuotaUsed, 0 }},
		{"/tenant", false, func(d *Document) { d.Metric, d.Window, d.Tenant = SilentNodes, 0, "acme" }},
		{"/tenant", false, func(d *Document) { d.Tenant = "Not a slug" }},
		{"/policy", false, func(d *Document) { d.Policy = "Not a slug" }},
		{"/policy", false, func(d *Document) { d.Metric, d.Tenant, d.Policy = DegradedShare, "acme", "logins" }},
		{"/window", false, func(d *Document) { d.Window = 0 }},
		{"/window", false, func(d *Document) { d.Window = 90 * time.Second }},
		{"/window", false, func(d *Document) { d.Metric = SilentNodes }},
		{"/threshold", false, func(d *Document) { d.Threshold = 0 }},
		{"/threshold", false, func(d *Document) { d.Threshold = 101 }},
		{"/recovery", false, func(d *Document) { d.Recovery = 2 }},
		{"/recovery", false, func(d *Document) { d.Recovery = -1 }},
		{"/for", false, func(d *Document) { d.For = -1 }},
		{"/min_requests", false, func(d *Document) { d.MinRequests = -1 }},
		{"/channels/1", false, func(d *Document) { d.Channels = []string{"a", "a"} }},
	} {
		d := good
		test.document(&d)
		var f problem.Fields
		d.validate(&f, !test.tenant)
		if test.fault == "" && len(f) > 0 || test.fault != "" && (len(f) != 1 || f[0].Pointer != test.fault) {
			t.Errorf("%+v: faults %v, want %q", d, f, test.fault)
		}
	}
}

func TestValidateChannel(t *testing.T) {
	t.Parallel()
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, test := range []struct {
		url     string
		allowed []netip.Prefix
		ok      bool
	}{
		{"https://example.com/hook?a=b", nil, true},
		{"http://example.com/hook", nil, false},
		{"http://10.0.0.1/hook", networks, true},
		{"https://10.0.0.1/hook", nil, false},
		{"https://[::1]/hook", nil, false},
		{"https://[::ffff:169.254.169.254]/", nil, false},
		{"https://user:secret@example.com/", nil, false},
		{"https://example.com/#part", nil, false},
		{"https:///hook", nil, false},
		{"https:example.com", nil, false},
		{"ftp://example.com/", networks, false},
		{"", nil, false},
		{"https://example.com/" + strings.Repeat("a", maxURL), nil, false},
	} {
		var f problem.Fields
		d := ChannelDocument{Name: "a", Kind: Webhook, URL: test.url}
		d.validate(&f, test.allowed)
		if (len(f) == 0) != test.ok {
			t.Errorf("%q: %v", test.url, f)
		}
	}
}

// The forecast reads as a length of time.
func TestForecastInWords(t *testing.T) {
	t.Parallel()
	rule := Document{Name: "Soon", Metric: ExhaustedIn, Tenant: "acme", Threshold: 24, Recovery: 36}
	for value, want := range map[float64]string{0: "0 s", 0.1222: "7 min", 24: "24 h", 26.5: "26 h 30 min", maxHours: "more than 90 days"} {
		if got := rule.Number(value); got != want {
			t.Errorf("%v hours: %q, want %q", value, got, want)
		}
	}
	i := Incident{Rule: rule, BeganAt: began}
	if got, want := i.Summary(EventBegan, 0.1222), "Alert: Soon. The time until the exhaustion of a quota of tenant acme is 7 min; the threshold is 24 h."; got != want {
		t.Errorf("%q", got)
	}
}
