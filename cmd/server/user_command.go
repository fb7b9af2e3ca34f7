package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

// userCommand is headgate user. It changes users directly in the database, for example when no
// owner can sign in. Running nodes use the change for their next request.
type userCommand struct {
	List              userList              `cmd:"" help:"List the operator's people, or those of a tenant."`
	Create            userCreate            `cmd:"" help:"Create a user; the first line of standard input is the password: headgate user create --email ann@example.com --role owner < password.txt"`
	Invite            userInvite            `cmd:"" help:"Print an invitation link for a new user: headgate user invite --email ann@example.com --role editor"`
	Link              userLink              `cmd:"" help:"Print a link that sets a new password: headgate user link ann@example.com"`
	Role              userRole              `cmd:"" help:"Change a user's role, and end the user's sessions: headgate user role ann@example.com viewer"`
	ResetSecondFactor userResetSecondFactor `cmd:"" help:"Remove the second factors and recovery codes of a user who has lost them, and end the user's sessions: headgate user reset-second-factor ann@example.com"`
	Disable           userDisable           `cmd:"" help:"Disable a user, and end the user's sessions at once: headgate user disable ann@example.com"`
	Enable            userEnable            `cmd:"" help:"Enable a disabled user: headgate user enable ann@example.com"`
}

// userPlace holds the flag that selects the users of a command: the users of one tenant, or the
// users of the operator.
type userPlace struct {
	localSettings
	Tenant string `setting:"false" placeholder:"SLUG" help:"People of this tenant; default: the operator's."`
}

// userNamed holds the arguments that select one user by e-mail address.
type userNamed struct {
	userPlace
	dryRun
	Email string `arg:"" help:"Their e-mail address, from headgate user list."`
}

// A peopleCommand holds the values that a user command needs: the service for users, the actor, and
// the ID of the tenant, which is "" for the operator.
type peopleCommand struct {
	*accounts.People
	by       accounts.Principal
	tenantID string
}

// A userWork is the function of a command that works on one user.
type userWork func(ctx context.Context, people peopleCommand, user accounts.User) error

// withPeople opens the database and calls work in one transaction. It passes the service for users
// to work.
func (u userPlace) withPeople(ctx context.Context, p program, name string, dry dryRun,
	work func(context.Context, peopleCommand) error,
) error {
	return u.withChange(ctx, p, name, dry, func(ctx context.Context, st *store.Store) error {
		people, err := u.people(ctx, st, name)
		if err != nil {
			return err
		}
		return work(ctx, people)
	})
}

// people returns the service for users, with the actor and the tenant of a command.
func (u userPlace) people(ctx context.Context, st *store.Store, name string) (c peopleCommand, err error) {
	c.by = accounts.CommandPrincipal(name)
	if u.Tenant != "" {
		t, err := tenants.NewService(st, tenants.Config{}).Tenant(ctx, u.Tenant)
		if err != nil {
			return c, fmt.Errorf("--tenant %s: %w", u.Tenant, err)
		}
		c.tenantID = t.ID
	}
	c.People, err = accounts.NewPeople(st, accounts.PeopleConfig{Limiter: inprocess.New(inprocess.Config{})})
	return c, err
}

// withUser opens the database and calls work in one transaction, with the user that u selects.
func (u userNamed) withUser(ctx context.Context, p program, name string, work userWork) error {
	return u.withPeople(ctx, p, name, u.dryRun, func(ctx context.Context, people peopleCommand) error {
		var found *accounts.User
		err := eachUser(ctx, people, u.Email, func(user accounts.User) {
			if accounts.FoldEmail(user.Email) == accounts.FoldEmail(u.Email) {
				found = &user
			}
		})
		switch {
		case err != nil:
			return err
		case found == nil:
			return fmt.Errorf("no user has the e-mail address %s: see headgate user list", u.Email)
		}
		return work(ctx, people, *found)
	})
}

func eachUser(ctx context.Context, people peopleCommand, query string, do func(accounts.User)) error {
	return eachRow(do, func(u accounts.User) string { return u.ID }, func(after string, limit int) ([]accounts.User, error) {
		return people.Users(ctx, people.by, people.tenantID, accounts.UserFilter{Query: query, After: after, Limit: limit})
	})
}

// eachRow calls do for every row of a paginated list. page returns at most limit rows that come
// after the row with the ID after. id returns the ID of a row.
func eachRow[T any](do func(T), id func(T) string, page func(after string, limit int) ([]T, error)) error {
	const limit = 100
	for after := ""; ; {
		rows, err := page(after, limit)
		if err != nil {
			return err
		}
		for _, row := range rows {
			do(row)
		}
		if len(rows) < limit {
			return nil
		}
		after = id(rows[len(rows)-1])
	}
}

type userList struct{ userPlace }

// A userRow is a user in the output of headgate user list.
type userRow struct {
	Email    string        `json:"email"`
	Name     string        `json:"name"`
	Role     accounts.Role `json:"role"`
	LastSeen string        `json:"last_sign_in_at"` // "never" if there is none
	Second   string        `json:"second_factor"`   // "on" or "off"
	State    string        `json:"state"`
}

func rowOfUser(user accounts.User) userRow {
	row := userRow{user.Email, user.Name, user.Role, "never", "off", "enabled"}
	if !user.SignedInAt.IsZero() {
		row.LastSeen = user.SignedInAt.UTC().Format(time.RFC3339)
	}
	if user.SecondFactor {
		row.Second = "on"
	}
	if user.Disabled {
		row.State = "disabled"
	}
	return row
}

func (u userList) Run(ctx context.Context, p program, t cli.Terminal) error {
	return u.withSchema(ctx, p, "user list", dryRun{}, func(ctx context.Context, st *store.Store) error {
		people, err := u.people(ctx, st, "user list")
		if err != nil {
			return err
		}
		rows := []userRow{}
		err = eachUser(ctx, people, "", func(user accounts.User) { rows = append(rows, rowOfUser(user)) })
		if err != nil {
			return err
		}
		return u.Table(t, map[string]any{"data": rows}, "data",
			cli.Column{Title: "E-MAIL", Path: "email"}, cli.Column{Title: "NAME", Path: "name"}, cli.Column{Title: "ROLE", Path: "role"},
			cli.Column{Title: "LAST SIGN-IN", Path: "last_sign_in_at"},
			cli.Column{Title: "SECOND FACTOR", Path: "second_factor"}, cli.Column{Title: "STATE", Path: "state"})
	})
}

type userCreate struct {
	userPlace
	dryRun
	Email string `required:"" setting:"false" help:"E-mail address to sign in with."`
	Name  string `setting:"false" help:"Default: the e-mail address."`
	Role  string `required:"" setting:"false" enum:"owner,editor,viewer,tenant_admin,tenant_viewer" help:"One of ${enum}."`
}

func (u userCreate) Run(ctx context.Context, p program, t cli.Terminal) error {
	password, err := firstLine(p.stdin)
	if err != nil {
		return usageError{err}
	}
	var user accounts.User
	err = u.withPeople(ctx, p, "user create", u.dryRun, func(ctx context.Context, people peopleCommand) error {
		_, token, err := people.Invite(ctx, people.by, people.tenantID, u.Email, accounts.Role(u.Role))
		if err == nil {
			user, err = people.Accept(ctx, token, accounts.NewPerson{Name: cmp.Or(u.Name, u.Email), Password: password})
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "%s can sign in as %s\n", user.Email, user.Role)
	u.say(p)
	return u.Text(t, rowOfUser(user), "")
}

// firstLine reads a password from standard input. A password cannot be an argument, because every
// user of the machine can read the command line of a process.
func firstLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password from standard input: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("the password is the first line of standard input, and there is none")
	}
	return line, nil
}

// linkSettings holds the flag with the base address of the links that a command prints.
type linkSettings struct {
	PublicURL string `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The address that people use, for the link."`
}

// Validate checks the base address. kong calls Validate before the command runs. So a command with
// an invalid address creates no token whose link it cannot print.
func (l linkSettings) Validate() error {
	if err := validPublicURL(l.PublicURL); err != nil {
		return fmt.Errorf("%s: %w", settingName("public-url"), err)
	}
	return nil
}

// A linkRow is the output of a command that prints a link.
type linkRow struct {
	Email     string        `json:"email"`
	Role      accounts.Role `json:"role"`
	Link      string        `json:"link,omitempty"` // "" in a dry run
	ExpiresAt string        `json:"expires_at"`
}

// print prints the link of an invitation. In a dry run, there is no link, because no invitation was
// created.
func (l linkSettings) print(p program, t cli.Terminal, out cli.Output, dry dryRun, i accounts.Invitation, token string) error {
	row := linkRow{Email: i.Email, Role: i.Role, ExpiresAt: i.ExpiresAt.UTC().Format(time.RFC3339)}
	if dry.DryRun {
		fmt.Fprintf(p.stderr, "a link for %s would be valid once until %s\n", i.Email, row.ExpiresAt)
		dry.say(p)
		return out.Text(t, row, "")
	}
	row.Link = strings.TrimSuffix(l.PublicURL, "/") + "/invite/" + token
	fmt.Fprintf(p.stderr, "link for %s, valid once until %s:\n", i.Email, row.ExpiresAt)
	return out.Text(t, row, row.Link+"\n")
}

type userInvite struct {
	userPlace
	dryRun
	linkSettings
	Email string `required:"" setting:"false" help:"E-mail address to sign in with."`
	Role  string `required:"" setting:"false" enum:"owner,editor,viewer,tenant_admin,tenant_viewer" help:"One of ${enum}."`
}

func (u userInvite) Run(ctx context.Context, p program, t cli.Terminal) error {
	var i accounts.Invitation
	var token string
	err := u.withPeople(ctx, p, "user invite", u.dryRun, func(ctx context.Context, people peopleCommand) (err error) {
		i, token, err = people.Invite(ctx, people.by, people.tenantID, u.Email, accounts.Role(u.Role))
		return err
	})
	if err != nil {
		return err
	}
	return u.print(p, t, u.Output, u.dryRun, i, token)
}

type userLink struct {
	userNamed
	linkSettings
}

func (u userLink) Run(ctx context.Context, p program, t cli.Terminal) error {
	var i accounts.Invitation
	var token string
	err := u.withUser(ctx, p, "user link", func(ctx context.Context, people peopleCommand, user accounts.User) (err error) {
		i, token, err = people.NewLink(ctx, people.by, user.TenantID, user.ID)
		return err
	})
	if err != nil {
		return err
	}
	return u.print(p, t, u.Output, u.dryRun, i, token)
}

type userRole struct {
	userNamed
	Role string `arg:"" enum:"owner,editor,viewer,tenant_admin,tenant_viewer" help:"One of ${enum}."`
}

func (u userRole) Run(ctx context.Context, p program, t cli.Terminal) error {
	return u.change(ctx, p, t, "user role", "is "+u.Role,
		func(people *accounts.People, ctx context.Context, by accounts.Principal, tenantID, id string) (accounts.User, error) {
			return people.ChangeRole(ctx, by, tenantID, id, accounts.Role(u.Role))
		})
}

type userResetSecondFactor struct{ userNamed }

func (u userResetSecondFactor) Run(ctx context.Context, p program, t cli.Terminal) error {
	return u.change(ctx, p, t, "user reset-second-factor", "signs in with the password only", (*accounts.People).ResetSecondFactor)
}

type userDisable struct{ userNamed }

func (u userDisable) Run(ctx context.Context, p program, t cli.Terminal) error {
	return u.change(ctx, p, t, "user disable", "is disabled", (*accounts.People).Disable)
}

type userEnable struct{ userNamed }

func (u userEnable) Run(ctx context.Context, p program, t cli.Terminal) error {
	return u.change(ctx, p, t, "user enable", "can sign in again", (*accounts.People).Enable)
}

// change calls work with the user that u selects, as withUser does, and prints the user that work
// returns.
func (u userNamed) change(ctx context.Context, p program, t cli.Terminal, name, after string,
	work func(people *accounts.People, ctx context.Context, by accounts.Principal, tenantID, id string) (accounts.User, error),
) error {
	var changed accounts.User
	err := u.withUser(ctx, p, name, func(ctx context.Context, people peopleCommand, user accounts.User) (err error) {
		changed, err = work(people.People, ctx, people.by, user.TenantID, user.ID)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "%s %s\n", changed.Email, after)
	u.say(p)
	return u.Text(t, rowOfUser(changed), "")
}
