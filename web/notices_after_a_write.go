package web

import (
	"github.com/labstack/echo/v4"
)

// notices contains the messages that a page can show after a write, by their names. The parameter done of
// the address contains such a name, and no text. So the author of a link cannot choose a text that the
// page shows.
var notices = map[string]string{
	"plan-created":          "The plan is created. It has no effect on tenants until you publish it.",
	"plan-deleted":          "The plan is deleted.",
	"draft-saved":           "The draft is saved. It has no effect on tenants until you publish it.",
	"draft-copied":          "The version is copied to the draft.",
	"shadowed":              "The policy is in shadow in the draft. After you publish the draft, Headgate counts what the policy would deny.",
	"joined":                "Your account is created. Sign in with your email address and password.",
	"password":              "Your password is changed. Sign in with the new one.",
	"left":                  "You are signed out.",
	"renamed":               "Your name is saved.",
	"changed":               "Your password is changed. Your other sessions are ended.",
	"ended":                 "The session is ended.",
	"alone":                 "Your other sessions are ended.",
	"withdrawn":             "The invitation is withdrawn.",
	"role":                  "The role is saved. All sessions of the person are ended.",
	"disabled":              "The person is disabled. All sessions are ended.",
	"enabled":               "The person is enabled.",
	"factor-added":          "The second factor is added. Your other sessions are ended.",
	"factor-removed":        "The second factor is removed.",
	"factor-reset":          "The second factor of the person is reset. All sessions are ended.",
	"removed":               "The person is removed.",
	"tenant-created":        "The tenant is created. Create an API key next, and send checks.",
	"tenant-saved":          "The settings are saved.",
	"tenant-plan":           "The plan is changed. It decides all checks from now on.",
	"tenant-suspended":      "The tenant is suspended. Headgate answers its checks with 403.",
	"tenant-resumed":        "The tenant is resumed.",
	"tenant-deleted":        "The tenant is deleted.",
	"key-revoked":           "The key is revoked. Headgate answers requests with this key with 401.",
	"keys-revoked":          "The key and the keys that it created are revoked. Headgate answers requests with them with 401.",
	"override-created":      "The override is in force.",
	"override-changed":      "The override is changed. Its new numbers are in force.",
	"override-deleted":      "The override is ended.",
	"entry-created":         "The entry is added.",
	"entry-deleted":         "The entry is removed.",
	"block-created":         "The key is blocked.",
	"block-deleted":         "The block is ended.",
	"grant-created":         "The grant is in force.",
	"grant-deleted":         "The grant is void.",
	"alert-rule-created":    "The rule is added. It is measured within ten seconds.",
	"alert-rules-created":   "The rules are added. They are measured within ten seconds.",
	"alert-rule-saved":      "The rule is saved.",
	"alert-rule-deleted":    "The rule is deleted.",
	"alert-muted":           "The rule is muted.",
	"alert-unmuted":         "The mute is ended.",
	"alert-channel-created": "The channel is added. Send a test message to it.",
	"alert-channel-saved":   "The channel is saved.",
	"alert-channel-deleted": "The channel is deleted.",
	"maintenance-created":   "The window is added.",
	"maintenance-deleted":   "The window is deleted.",
	"alert-test-queued":     "The test message is queued. A node sends it within seconds; reload to see the answer.",
	"alert-message-queued":  "The message is queued again with the same webhook-id.",
	"filter-saved":          "The filter is saved.",
	"filter-changed":        "The filter is changed.",
	"filter-deleted":        "The filter is deleted.",
	"link-revoked":          "The link is revoked. It opens nothing, and its displays end within seconds.",
	"key-reset":             "The counters of this key are reset.",
	"reservation-extended":  "The reservation has a new end.",
	"reservation-settled":   "The reservation is settled.",
	"reservation-released":  "The reservation is given back.",
	"lease-revoked":         "The lease is revoked. Its places are free.",
	"lease-ended":           "The lease had ended already.",
}

// Notice returns the message that the parameter done of the address selects, or "".
func Notice(c echo.Context) string { return notices[c.QueryParam("done")] }
