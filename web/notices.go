package web

import (
	"github.com/labstack/echo/v4"
)

// notices are the sentences that a page shows after a write. The address names
// one, so that nobody can put words of their own into a page.
var notices = map[string]string{
	"plan-created":     "The plan is made. Tenants see nothing of it before you publish it.",
	"plan-deleted":     "The plan is deleted.",
	"draft-saved":      "The draft is saved. Tenants see nothing of it before you publish it.",
	"draft-copied":     "The version is copied into the draft.",
	"shadowed":         "The policy is in shadow in the draft. Publish the draft, and what it would refuse is counted from then on.",
	"joined":           "Your account is ready. Sign in with your e-mail and password.",
	"password":         "Your password is changed. Sign in with the new one.",
	"left":             "You are signed out.",
	"renamed":          "Your name is saved.",
	"changed":          "Your password is changed, and your other sessions are ended.",
	"ended":            "The session is ended.",
	"alone":            "Your other sessions are ended.",
	"withdrawn":        "The invitation is withdrawn.",
	"role":             "The role is saved. The person's sessions are ended.",
	"disabled":         "The person is disabled, and all sessions are ended.",
	"enabled":          "The person is enabled.",
	"removed":          "The person is removed.",
	"tenant-created":   "The tenant is there. Make an API key next, and send its checks.",
	"tenant-saved":     "The settings are saved.",
	"tenant-plan":      "The plan is changed. Checks are decided by it from now on.",
	"tenant-suspended": "The tenant is suspended: its checks are answered 403.",
	"tenant-resumed":   "The tenant is resumed.",
	"tenant-deleted":   "The tenant is deleted.",
	"key-revoked":      "The key is revoked: requests with it are answered 401.",
	"override-created": "The override is in force.",
	"override-deleted": "The override is ended.",
	"entry-created":    "It is on the list.",
	"entry-deleted":    "It is off the list.",
	"block-created":    "The key is blocked.",
	"block-deleted":    "The block is ended.",
	"key-reset":        "The counters of this key are as new.",
}

// Notice is the sentence that the address names in its parameter done.
func Notice(c echo.Context) string { return notices[c.QueryParam("done")] }
