package alerts

import (
	"crypto/rand"
	"encoding/base64"
	"net/mail"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// A Kind says how a channel sends messages.
type Kind string

const (
	Webhook Kind = "webhook" // signed JSON, as the Standard Webhooks specification defines it
	Slack   Kind = "slack"   // an incoming webhook of Slack, or of a program that accepts the same JSON
	Email   Kind = "email"   // a message in plain text to one e-mail address
)

// Kinds lists every kind.
var Kinds = []Kind{Webhook, Slack, Email}

// mailto is the prefix of the URL of a channel of the kind Email.
const mailto = "mailto:"

// A Channel is an address to which messages are sent.
type Channel struct {
	ID       string // UUIDv7
	TenantID string // ID of the tenant that owns the channel; "" for the operator
	Version  int64  // 1 for a new channel; each change adds 1
	ChannelDocument
	// Secret signs the messages of a webhook. It begins with whsec_. After a change of the secret,
	// the previous secret Former also signs the messages until FormerUntil. In this time, people
	// can change the secret at the receiver, and no message is rejected.
	Secret, Former       string
	FormerUntil          time.Time
	CreatedAt, UpdatedAt time.Time
}

// A ChannelDocument is the part of a channel that people edit. The database and the audit log
// contain it as this JSON.
type ChannelDocument struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	URL  string `json:"url"`
}

const maxURL = 2000 // bytes

// validate adds the faults of a document to f. Addresses in the networks allowed may be private,
// and need not use TLS.
func (d *ChannelDocument) validate(f *problem.Fields, allowed []netip.Prefix) {
	f.Line("/name", d.Name, 1, MaxName)
	switch d.Kind {
	case Webhook, Slack:
	case Email:
		if _, ok := d.recipient(); !ok {
			f.Add("/url", "must be an e-mail address such as mailto:ops@example.com")
		}
		return
	default:
		f.Add("/kind", "must be webhook, slack or email")
	}
	u, err := url.Parse(d.URL)
	switch {
	case len(d.URL) > maxURL:
		f.Add("/url", "must have at most %d bytes", maxURL)
	case err != nil || u.Host == "" || u.Opaque != "" || u.Hostname() == "":
		f.Add("/url", "must be an address such as https://example.com/hooks")
	case u.Scheme != "https" && (u.Scheme != "http" || len(allowed) == 0):
		f.Add("/url", "must begin with https://")
	case u.User != nil:
		f.Add("/url", "must have no user name and no password")
	case u.Fragment != "":
		f.Add("/url", "must have no fragment")
	default:
		// If the host is a name, its address is checked later, when a message is sent.
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !reachable(ip, allowed) {
			f.Add("/url", "%s is a private address; HEADGATE_WEBHOOK_NETWORKS can allow it", ip)
		}
	}
}

// recipient returns the e-mail address of a channel of the kind Email.
func (d *ChannelDocument) recipient() (string, bool) {
	address, is := strings.CutPrefix(d.URL, mailto)
	parsed, err := mail.ParseAddress(address)
	return address, is && err == nil && parsed.Address == address && len(d.URL) <= maxURL
}

// HideAddress returns only the scheme and the host of an address, because the path of many
// webhook addresses is a secret. It returns an e-mail address unchanged.
func HideAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" { // the address is an e-mail address, which has no secret part
		return address
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// secretPrefix is the prefix of secrets in the Standard Webhooks specification.
const secretPrefix = "whsec_"

// NewSecret returns a random secret of 256 bits.
func NewSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

func secretBytes(secret string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
}

// Private networks for which net/netip has no method.
var private = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network, RFC 791
	netip.MustParsePrefix("100.64.0.0/10"),   // shared address space, RFC 6598
	netip.MustParsePrefix("192.0.0.0/24"),    // IETF protocol assignments, RFC 6890
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation, RFC 5737
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks, RFC 2544
	netip.MustParsePrefix("198.51.100.0/24"), // documentation, RFC 5737
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation, RFC 5737
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, RFC 1112
	netip.MustParsePrefix("64:ff9b::/96"),    // NAT64, RFC 6052: contains IPv4 addresses
	netip.MustParsePrefix("64:ff9b:1::/48"),  // NAT64, RFC 8215
	netip.MustParsePrefix("100::/64"),        // discard, RFC 6666
	netip.MustParsePrefix("2001::/23"),       // IETF protocol assignments with Teredo, RFC 4380
	netip.MustParsePrefix("2001:db8::/32"),   // documentation, RFC 3849
	netip.MustParsePrefix("2002::/16"),       // 6to4, RFC 3056: contains IPv4 addresses
	netip.MustParsePrefix("fec0::/10"),       // site-local, RFC 3879
}

// reachable reports whether a message may be sent to an IP address: it is public, or it is in
// one of the networks allowed.
func reachable(ip netip.Addr, allowed []netip.Prefix) bool {
	ip = ip.Unmap().WithZone("")
	for _, network := range allowed {
		if network.Contains(ip) {
			return true
		}
	}
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return false
	}
	for _, network := range private {
		if network.Contains(ip) {
			return false
		}
	}
	return true
}
