package exceptions

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A factor is counted in thousandths, and written as a decimal number: 1.5 is
// 1500. Both ways are exact: no number passes through a float.

// maxFactorText bounds what ParseFactor looks at; nothing in order is as long.
const maxFactorText = 32

var errFactor = errors.New("must be a decimal number from 0.001 to 1000 with at most three decimals, like 1.5")

// ParseFactor parses a decimal number from 0.001 to 1000, as JSON spells it but
// without an exponent, and returns thousandths. Only zeros may follow the third
// decimal. The error says which values are valid.
func ParseFactor(text string) (int64, error) {
	whole, decimals, point := strings.Cut(text, ".")
	if len(text) > maxFactorText || !digits(whole) || point && !digits(decimals) || len(whole) > 1 && whole[0] == '0' {
		return 0, errFactor
	}
	decimals = strings.TrimRight(decimals, "0")
	if len(whole) > 4 || len(decimals) > 3 {
		return 0, errFactor
	}
	n, err := strconv.ParseInt(whole+decimals+"000"[len(decimals):], 10, 64)
	if err != nil || n < 1 || n > enforcement.MaxFactor {
		return 0, errFactor
	}
	return n, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// FormatFactor gives thousandths as a decimal number in its shortest form, as
// ParseFactor reads it.
func FormatFactor(thousandths int64) string {
	text := strconv.FormatInt(thousandths/1000, 10)
	if rest := thousandths % 1000; rest != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%03d", rest), "0")
	}
	return text
}

// The forms in the audit log: as the API shows what is set.

type jsonOverride struct {
	ID        string      `json:"id"`
	Policy    string      `json:"policy"`
	Attribute string      `json:"attribute,omitempty"`
	Value     string      `json:"value,omitempty"`
	Prefix    string      `json:"prefix,omitempty"`
	Factor    json.Number `json:"factor,omitempty"`
	Limits    []jsonLimit `json:"limits,omitempty"`
	Reason    string      `json:"reason"`
	ExpiresAt time.Time   `json:"expires_at"`
	CreatedAt time.Time   `json:"created_at"`
}

type jsonLimit struct {
	Name   string `json:"name"`
	Quota  *int64 `json:"quota,omitempty"`
	Burst  *int64 `json:"burst,omitempty"`
	Window string `json:"window,omitempty"`
}

// JSON gives the override's document, instants in UTC.
func (o Override) JSON() (json.RawMessage, error) {
	out := jsonOverride{
		ID: o.ID, Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix,
		Reason: o.Reason, ExpiresAt: o.ExpiresAt.UTC(), CreatedAt: o.CreatedAt.UTC(),
	}
	if o.Factor != 0 {
		out.Factor = json.Number(FormatFactor(o.Factor))
	}
	for _, l := range o.Limits {
		limit := jsonLimit{Name: l.Name, Quota: unlessKept(l.Quota), Burst: unlessKept(l.Burst)}
		if l.Window != 0 {
			limit.Window = enforcement.FormatWindow(l.Window)
		}
		out.Limits = append(out.Limits, limit)
	}
	return enforcement.MarshalJSON(out)
}

func unlessKept(n int64) *int64 {
	if n == enforcement.Keep {
		return nil
	}
	return &n
}

type jsonEntry struct {
	ID        string     `json:"id"`
	List      List       `json:"list"`
	Attribute string     `json:"attribute"`
	Value     string     `json:"value"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
}

// JSON gives the entry's document, instants in UTC.
func (n Entry) JSON() (json.RawMessage, error) {
	out := jsonEntry{
		ID: n.ID, List: n.List, Attribute: n.Attribute, Value: n.Value, Reason: n.Reason, CreatedAt: n.CreatedAt.UTC(),
	}
	if !n.ExpiresAt.IsZero() {
		end := n.ExpiresAt.UTC()
		out.ExpiresAt = &end
	}
	return enforcement.MarshalJSON(out)
}

type jsonBlock struct {
	ID        string            `json:"id"`
	Policy    string            `json:"policy"`
	Key       map[string]string `json:"key"`
	Reason    string            `json:"reason"`
	ExpiresAt time.Time         `json:"expires_at"`
	CreatedAt time.Time         `json:"created_at"`
}

// JSON gives the block's document, instants in UTC.
func (b Block) JSON() (json.RawMessage, error) {
	return enforcement.MarshalJSON(jsonBlock{
		ID: b.ID, Policy: b.Policy, Key: notNil(b.Key), Reason: b.Reason, ExpiresAt: b.ExpiresAt.UTC(), CreatedAt: b.CreatedAt.UTC(),
	})
}

type jsonReset struct {
	Policy string            `json:"policy"`
	Key    map[string]string `json:"key"`
	Reason string            `json:"reason,omitempty"`
}

// JSON gives the reset's document.
func (r Reset) JSON() (json.RawMessage, error) {
	return enforcement.MarshalJSON(jsonReset{Policy: r.Policy, Key: notNil(r.Key), Reason: r.Reason})
}

// notNil: the key of a policy that counts the whole tenant is {}, not null.
func notNil(key map[string]string) map[string]string {
	if key == nil {
		return map[string]string{}
	}
	return key
}
