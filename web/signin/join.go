package signin

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// joinView returns the form to which the link of an invitation leads. In this form, the
// visitor creates the first owner, accepts the invitation, or sets a new password.
func (w *pages) joinView(c echo.Context, i accounts.Invitation) (views.Join, error) {
	v := views.Join{
		Action:   c.Request().URL.Path,
		Email:    views.Input{Name: "email", Label: "Email", Type: "email", Value: i.Email, Autocomplete: "username", ReadOnly: i.Email != ""},
		Name:     views.Input{Name: "name", Label: "Your name", Type: "text", Autocomplete: "name"},
		Password: views.Input{Name: "password", Label: "Password", Type: "password", Autocomplete: "new-password", Hint: passwordHint},
		HasName:  i.UserID == "",
	}
	if w.cfg.Provider != nil && i.UserID == "" && !setsUp(c) {
		v.Provider, v.ProviderURL = w.cfg.ProviderName, "/sign-in/oidc"
	}
	switch {
	case i.UserID != "":
		v.Title, v.Button, v.Password.Label = "Choose a new password", "Save password", "New password"
		v.Intro = "All your sessions end. Then sign in with the new password."
	case setsUp(c):
		v.Title, v.Button = "Set up Headgate", "Create the first account"
		v.Intro = "You become the owner: you may do everything, and you can invite others."
	default:
		v.Title, v.Button = "Join Headgate", "Create account"
		to := ""
		if i.TenantID != "" {
			t, err := w.cfg.Tenants.Tenant(c.Request().Context(), i.TenantID)
			if err != nil {
				return views.Join{}, err
			}
			to = " to " + t.Name
		}
		v.Intro = "You are invited" + to + " as " + strings.ToLower(web.RoleName(i.Role)) + "."
	}
	return v, nil
}

func setsUp(c echo.Context) bool { return strings.HasPrefix(c.Path(), "/setup/") }

// invitation returns the invitation whose token is in the path. The token for the first owner
// is only valid below /setup, and all other tokens only below /invite.
func (w *pages) invitation(c echo.Context) (accounts.Invitation, error) {
	ctx, token := c.Request().Context(), c.Param("token")
	if setsUp(c) {
		return accounts.Invitation{Role: accounts.Owner}, w.cfg.People.ReadySetup(ctx, token)
	}
	return w.cfg.People.Invitation(ctx, token)
}

// deadLink shows a page that says that a link does not work: it does not exist, was used or
// withdrawn, or has expired.
func (w *pages) deadLink(c echo.Context, err error) error {
	used := (*problem.Problem)(nil)
	if !problem.Is(err, problem.NotFound) && (!errors.As(err, &used) || used.Code != "already_set_up") {
		return err
	}
	return w.Render(c, http.StatusNotFound, views.ErrorPage(w.Page(c, "This link does not work"), views.Error{
		Status: "404", Title: "This link does not work",
		Text: "The link was used, has expired, or was withdrawn. Ask the person who sent it for a new one. If you have used it, sign in.",
		Back: "Sign in", BackURL: "/sign-in",
	}))
}

func (w *pages) joinForm(c echo.Context) error {
	i, err := w.invitation(c)
	if err != nil {
		return w.deadLink(c, err)
	}
	v, err := w.joinView(c, i)
	if err != nil {
		return w.deadLink(c, err)
	}
	return w.showJoin(c, http.StatusOK, v)
}

func (w *pages) showJoin(c echo.Context, status int, v views.Join) error {
	return w.Render(c, status, views.JoinPage(w.Page(c, v.Title), v))
}

// join creates the account or sets the new password. Only the first owner is then signed in.
// All other people must sign in themselves, because the response must not reveal whether the
// e-mail address already had an account.
func (w *pages) join(c echo.Context, f url.Values) error {
	i, err := w.invitation(c)
	if err != nil {
		return w.deadLink(c, err)
	}
	ctx, token, n := c.Request().Context(), c.Param("token"), accounts.NewPerson{Name: f.Get("name"), Password: f.Get("password")}
	if setsUp(c) {
		n.Email = f.Get("email")
		if _, err = w.cfg.People.SetUp(ctx, token, n); err == nil && w.toSecondStep(c, "/", w.enter(c, n.Email, n.Password, "/")) == nil {
			return nil
		}
	} else {
		_, err = w.cfg.People.Accept(ctx, token, n)
	}
	if err == nil {
		notice := "joined"
		if i.UserID != "" {
			notice = "password"
		}
		return c.Redirect(http.StatusSeeOther, "/sign-in?done="+notice)
	}
	v, invalid := w.joinView(c, i)
	if invalid != nil {
		return invalid
	}
	v.Name.Value = n.Name
	if setsUp(c) {
		v.Email.Value = n.Email
	}
	failed := web.Retry(err, &v, &v.Faults, nil, func(status int) error {
		if status == http.StatusConflict {
			return err
		}
		return w.showJoin(c, status, v)
	})
	if failed != nil {
		return w.deadLink(c, failed)
	}
	return nil
}
