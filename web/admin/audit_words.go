package admin

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/web/views"
)

// An actorKind has the label and the icon for a kind of actor.
type actorKind struct{ label, icon string }

var actorKinds = map[string]actorKind{
	"user":         {"A person", "user-round"},
	"operator_key": {"An operator key", "key-round"},
	"tenant_key":   {"A key of the tenant", "key-round"},
	"command":      {"A command on a server", "command"},
	"system":       {"Headgate itself", "server"},
	"operator":     {"The operator", "building-2"},
}

func actorKindOf(kind string) actorKind {
	if k, known := actorKinds[kind]; known {
		return k
	}
	return actorKind{kind, "circle-help"}
}

// actions has the English words for each action. A page shows these words, and then the name of
// the object.
var actions = map[string]string{
	"access.refused":                  "was denied",
	"alert_channel.change":            "changed the alert channel",
	"alert_channel.create":            "created the alert channel",
	"alert_channel.delete":            "deleted the alert channel",
	"alert_channel.rotate_secret":     "rotated the secret of the alert channel",
	"alert_channel.test":              "sent a test message to the alert channel",
	"alert_delivery.repeat":           "sent again the alert message",
	"alert_maintenance.create":        "created the maintenance window",
	"alert_maintenance.delete":        "deleted the maintenance window",
	"alert_rule.change":               "changed the alert rule",
	"alert_rule.create":               "created the alert rule",
	"alert_rule.delete":               "deleted the alert rule",
	"block.create":                    "blocked a key of",
	"block.delete":                    "ended the block of a key of",
	"block.expire":                    "removed the expired block of a key of",
	"grant.create":                    "created a grant for",
	"grant.delete":                    "voided a grant for",
	"grant.expire":                    "removed the expired grant for",
	"counter.reset":                   "reset the counters of",
	"demo.begin":                      "started to create the demo data",
	"demo.make":                       "created the demo data",
	"invitation.withdraw":             "withdrew the invitation of",
	"key.create":                      "created the API key",
	"key.revoke":                      "revoked the API key",
	"key.rotate":                      "rotated the API key",
	"lease.revoke":                    "revoked a lease of",
	"list_entry.create":               "added to a list",
	"list_entry.delete":               "removed from a list",
	"list_entry.expire":               "removed as expired from a list",
	"operator_key.create":             "created the operator key",
	"operator_key.revoke":             "revoked the operator key",
	"operator_key.rotate":             "rotated the operator key",
	"override.create":                 "created an override of",
	"override.delete":                 "ended an override of",
	"override.update":                 "changed an override of",
	"override.expire":                 "removed the expired override of",
	"plan.create":                     "created the plan",
	"plan.delete":                     "deleted the plan",
	"plan.publish":                    "published the plan",
	"plan.save_draft":                 "edited the draft of the plan",
	"redis.lost":                      "found that counts are missing in",
	"reservation.extend":              "extended the reservation",
	"reservation.release":             "gave back the reservation",
	"reservation.settle":              "settled the reservation",
	"second_factor.add":               "added a second factor for",
	"second_factor.recovery_codes":    "made new recovery codes for",
	"second_factor.remove":            "removed a second factor of",
	"second_factor.reset":             "reset the second factor of",
	"second_factor.reencrypt":         "encrypted with another key the secrets of",
	"second_factor.use_recovery_code": "used a recovery code of",
	"saved_filter.change":             "changed the shared filter",
	"saved_filter.delete":             "deleted the shared filter",
	"saved_filter.share":              "shared the filter",
	"saved_filter.unshare":            "ended to share the filter",
	"session.end":                     "ended sessions of",
	"shared_link.create":              "shared a page by the link",
	"shared_link.revoke":              "revoked the shared link",
	"session.sign_in":                 "signed in as",
	"session.sign_in_failed":          "failed to sign in as",
	"session.sign_out":                "signed out as",
	"setting.delete":                  "removed the setting",
	"setting.put":                     "changed the setting",
	"sign_in.failed":                  "failed to sign in as",
	"tenant.create":                   "created the tenant",
	"tenant.delete":                   "deleted the tenant",
	"tenant.update":                   "changed the tenant",
	"user.create":                     "joined as",
	"user.invite":                     "invited",
	"user.password":                   "set a new password of",
	"user.remove":                     "removed the person",
	"user.set_up":                     "set Headgate up as",
	"user.update":                     "changed the person",
}

// actionWords returns the words of an action, or the action itself if it is unknown.
func actionWords(action string) string {
	if words, known := actions[action]; known {
		return words
	}
	return action
}

const (
	longestValue = 400
	noInstant    = "0001-01-01T00:00:00Z"
)

// fieldChanges compares two JSON documents field by field. In the path of a field, an element
// of a list appears as its slug, name or id if all elements of the list have one, and otherwise
// as its index. A document that is not JSON counts as one field.
func fieldChanges(before, after json.RawMessage) []views.FieldChange {
	old, now := fieldsOf(before), fieldsOf(after)
	var names []string
	for name := range old {
		names = append(names, name)
	}
	for name := range now {
		if _, both := old[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var list []views.FieldChange
	for _, name := range names {
		was, had := old[name]
		is, has := now[name]
		change := views.FieldChange{Field: name, What: "changed", Before: was, After: is}
		switch {
		case had && has && was == is:
			continue
		case !had:
			change.What = "added"
		case !has:
			change.What = "removed"
		}
		list = append(list, change)
	}
	return list
}

// fieldsOf returns the values in a JSON document by their paths. It leaves out objects and
// lists, and returns the values in them instead.
func fieldsOf(document json.RawMessage) map[string]string {
	fields := map[string]string{}
	if len(document) == 0 {
		return fields
	}
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber() // keeps numbers as they are written
	var v any
	if d.Decode(&v) != nil {
		fields["document"] = shortened(string(document))
		return fields
	}
	leaves(fields, "", v)
	return fields
}

func leaves(fields map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 && path != "" {
			fields[path] = "{}"
		}
		for name, value := range v {
			under := name
			if path != "" {
				under = path + "." + name
			}
			leaves(fields, under, value)
		}
	case []any:
		if plain, all := plainList(v); all {
			fields[named(path)] = plain
			return
		}
		names := elementNames(v)
		for i, value := range v {
			leaves(fields, path+"["+names[i]+"]", value)
		}
	default:
		fields[named(path)] = leaf(v)
	}
}

// named returns the name that a path has on the page. The path "" stands for the whole
// document, and becomes the word "document".
func named(path string) string {
	if path == "" {
		return "document"
	}
	return path
}

// plainList joins the elements of a list to one text. It returns false if an element is an
// object or a list.
func plainList(list []any) (string, bool) {
	words := make([]string, len(list))
	for i, v := range list {
		switch v.(type) {
		case map[string]any, []any:
			return "", false
		}
		words[i] = leaf(v)
	}
	if len(words) == 0 {
		return "none", true
	}
	return shortened(strings.Join(words, ", ")), true
}

// elementNames returns a name for each element of a list. It uses the first of the fields slug,
// name and id that all elements have with different values. If there is no such field, it uses
// the position.
func elementNames(list []any) []string {
	for _, field := range []string{"slug", "name", "id"} {
		names, seen := make([]string, 0, len(list)), map[string]bool{}
		for _, v := range list {
			m, _ := v.(map[string]any)
			name, _ := m[field].(string)
			if name == "" || seen[name] {
				break
			}
			seen[name] = true
			names = append(names, name)
		}
		if len(names) == len(list) {
			return names
		}
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = strconv.Itoa(i + 1)
	}
	return names
}

// leaf returns one value as text.
func leaf(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case json.Number:
		return v.String()
	case string:
		switch v {
		case "":
			return "empty"
		case noInstant:
			return "never"
		}
		return shortened(v)
	}
	return ""
}

func shortened(text string) string {
	if r := []rune(text); len(r) > longestValue {
		return string(r[:longestValue]) + "…"
	}
	return text
}

// indented returns a document as indented JSON. It returns "" if there is no document.
func indented(document json.RawMessage) string {
	if len(document) == 0 {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, document, "", "  ") != nil {
		return string(document)
	}
	return b.String()
}
