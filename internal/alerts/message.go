package alerts

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Event says why a message is sent.
type Event string

const (
	EventBegan    Event = "alert.began"
	EventResolved Event = "alert.resolved"
	EventTest     Event = "alert.test"
	EventInvited  Event = "invitation" // not about an alert: an e-mail with the link of an invitation
)

// An Incident is one alert, from its beginning to its end.
type Incident struct {
	ID       string // UUIDv7
	TenantID string // ID of the tenant that owns the rule; "" for the operator
	RuleID   string
	Rule     Document // the document of the rule when the alert began
	BeganAt  time.Time
	EndedAt  time.Time // zero while the alert is firing
	Value    float64   // the figure when the alert began
	Peak     float64
	Detail   string // sentence about the figure when the alert began
}

// A Delivery is one message to one channel.
type Delivery struct {
	ID         string // a UUIDv7; the webhook-id of every attempt
	TenantID   string // ID of the tenant that owns the channel or the invitation; "" for the operator
	ChannelID  string // "" for an invitation
	IncidentID string // "" for a test message and for an invitation
	// InvitationID is the invitation whose link is sent; "" for other messages. If it is set,
	// Body is empty, because the link is created only when the message is sent.
	InvitationID string
	Event        Event
	Body         []byte // JSON in the form that the kind of the channel requires
	CreatedAt    time.Time
	// DueAt is the time of the next attempt. It is zero if there will be none.
	DueAt    time.Time
	Attempts int
	Status   DeliveryStatus
	// Answer is the result of the last attempt, such as "503 Service Unavailable".
	Answer string
	EndAt  time.Time // time at which the delivery succeeded or was given up; zero before
}

// An Attempt is one attempt to send a delivery.
type Attempt struct {
	At     time.Time // when it ended
	Answer string
}

// A DeliveryStatus is the status of a delivery.
type DeliveryStatus string

const (
	Waiting   DeliveryStatus = "waiting"
	Delivered DeliveryStatus = "delivered"
	Dead      DeliveryStatus = "dead" // given up: after 24 hours, or because the receiver will never accept it
)

// DeliveryStatuses lists every status.
var DeliveryStatuses = []DeliveryStatus{Waiting, Delivered, Dead}

// body is the JSON of a webhook message.
type body struct {
	Type      Event    `json:"type"`
	Timestamp string   `json:"timestamp"`
	Data      bodyData `json:"data"`
}

type bodyData struct {
	Incident  string  `json:"incident_id,omitempty"`
	Rule      string  `json:"rule_id,omitempty"`
	Name      string  `json:"name"`
	Metric    Metric  `json:"metric,omitempty"`
	Tenant    string  `json:"tenant,omitempty"`
	Policy    string  `json:"policy,omitempty"`
	Threshold float64 `json:"threshold,omitempty"`
	Value     float64 `json:"value"`
	Peak      float64 `json:"peak,omitempty"`
	BeganAt   string  `json:"began_at,omitempty"`
	EndedAt   string  `json:"ended_at,omitempty"`
	Summary   string  `json:"summary"`
	Detail    string  `json:"detail,omitempty"`
	Page      string  `json:"page,omitempty"`
}

// A letter is the Body of a delivery to a channel of the kind Email.
type letter struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// A Messenger writes the text of messages.
type Messenger struct {
	// URL is the address of the dashboard, without a slash at the end. If it is "", messages
	// contain no links.
	URL string
}

// Body returns the message about an event, in the form for channels of the kind k. value is the
// newest figure of the rule.
func (m Messenger) Body(k Kind, e Event, i *Incident, value float64, now time.Time) []byte {
	r := &i.Rule
	d := bodyData{
		Incident: i.ID, Rule: i.RuleID, Name: r.Name, Metric: r.Metric, Tenant: r.Tenant, Policy: r.Policy,
		Threshold: r.Threshold, Value: value, Peak: i.Peak, Summary: i.Summary(e, value), Detail: i.Detail,
		BeganAt: instant(i.BeganAt), EndedAt: instant(i.EndedAt),
	}
	d.Page = m.page(i)
	var message any = body{e, instant(now), d}
	switch k {
	case Webhook:
	case Email:
		lines := slices.DeleteFunc([]string{d.Summary, d.Detail, d.Page}, func(line string) bool { return line == "" })
		message = letter{d.Summary, strings.Join(lines, "\n\n") + "\n"}
	case Slack:
		message = map[string]string{"text": strings.TrimSpace(strings.Join([]string{d.Summary, d.Detail, d.Page}, "\n"))}
	}
	text, _ := json.Marshal(message) // json.Marshal never fails here, because all numbers are finite
	return text
}

// page returns the address of an incident in the dashboard. For a test message, which has no
// incident, it returns the address of the list of alerts. It returns "" if the address of the
// dashboard is unknown.
func (m Messenger) page(i *Incident) string {
	if m.URL == "" {
		return ""
	}
	at := m.URL
	if i.TenantID != "" {
		at += "/tenants/" + i.TenantID
	}
	at += "/alerts"
	if i.ID != "" {
		at += "/" + i.ID
	}
	return at
}

// instant returns a time in the format of the API, or "" for the zero time.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// Summary returns one sentence about an event of the incident. value is the newest figure of
// the rule.
func (i *Incident) Summary(e Event, value float64) string {
	r := &i.Rule
	switch e {
	case EventTest:
		return "Test message of Headgate for channel " + r.Name + "."
	case EventResolved:
		return fmt.Sprintf("Resolved: %s. %s is %s; the alert lasted %s.", r.Name, r.subject(), r.number(value), length(i.EndedAt.Sub(i.BeganAt)))
	}
	return fmt.Sprintf("Alert: %s. %s is %s; the threshold is %s.", r.Name, r.subject(), r.number(value), r.number(r.Threshold))
}

var metricWords = map[Metric]string{
	DenialRate: "The 429 rate", Denials: "The number of denied requests", DegradedShare: "The share of degraded decisions",
	LimiterLatency: "The p99 latency of the limiter", QuotaUsed: "The used quota", ExhaustedIn: "The time until the exhaustion of a quota",
	NearLimit:   "The highest reached warning threshold",
	SilentNodes: "The number of silent nodes",
	NodeAlarms:  "The number of alarms of nodes", SnapshotsHeld: "The number of nodes that hold back a snapshot",
}

// Figure returns the name of the rule's figure in words, such as "The 429 rate of tenant acme
// in the last 5 min". Number returns the value v of the figure with its unit.
func (d *Document) Figure() string          { return d.subject() }
func (d *Document) Number(v float64) string { return d.number(v) }

// subject returns the name of the rule's figure in words, as the beginning of a sentence.
func (d *Document) subject() string {
	text := metricWords[d.Metric]
	if d.Policy != "" {
		text += " of policy " + d.Policy
	}
	switch {
	case d.Tenant != "":
		text += " of tenant " + d.Tenant
	case d.EachTenant:
		text += " of each tenant"
	}
	if d.Window > 0 {
		text += " in the last " + length(d.Window)
	}
	return text
}

// number returns the value v of the rule's figure with its unit.
func (d *Document) number(v float64) string {
	t, _ := d.Metric.trait()
	if d.Metric == ExhaustedIn {
		if v >= maxHours {
			return "more than 90 days"
		}
		return length(time.Duration(v * float64(time.Hour)))
	}
	return strconv.FormatFloat(float64(int64(v*10+0.5))/10, 'f', -1, 64) + t.unit
}

// length returns a duration in words, rounded to whole seconds, minutes, or hours and minutes.
func length(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d%time.Hour < time.Minute:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// Sign returns the value of the header webhook-signature in the form of the Standard Webhooks
// specification: one signature for each secret. It skips secrets that cannot be decoded.
func Sign(id string, at time.Time, body []byte, secrets ...string) string {
	var list []string
	for _, secret := range secrets {
		key, err := secretBytes(secret)
		if err != nil || len(key) == 0 {
			continue
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
		mac.Write(body)
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(list, " ")
}
