package views

import (
	"context"
	"strconv"
	"time"
)

// A Moment is a time in words relative to now, such as "3 minutes ago". The page shows the
// exact time when the pointer is over the words.
type Moment struct {
	ISO   string
	Words string // "" if the date says more
	at    time.Time
}

const momentForm = "2 January 2006, 15:04"

// Exact returns the exact time in the time zone of the page.
func (m Moment) Exact(ctx context.Context) string { return InZone(ctx, m.at, momentForm) }

// words returns the text of the Moment.
func (m Moment) words(ctx context.Context) string {
	if m.Words == "" {
		return m.at.In(Zone(ctx)).Format("2 January 2006")
	}
	return m.Words
}

// NewMoment describes t in words relative to now. For the zero time, the words are "never".
func NewMoment(t, now time.Time) Moment {
	if t.IsZero() {
		return Moment{Words: "never"}
	}
	m := Moment{ISO: t.UTC().Format(time.RFC3339), at: t}
	distance := now.Sub(t)
	switch ahead := distance < 0; {
	case distance.Abs() < time.Minute && ahead:
		m.Words = "in less than a minute"
	case distance.Abs() < time.Minute:
		m.Words = "just now"
	case distance.Abs() >= 14*24*time.Hour: // the date
	case ahead:
		m.Words = "in " + Wait(-distance)
	default:
		m.Words = Wait(distance) + " ago"
	}
	return m
}

// Wait formats a duration in words, rounded to its largest unit. The shortest result is one
// minute.
func Wait(d time.Duration) string {
	n, unit := int(max(1, d/time.Minute)), "minute"
	if d >= 48*time.Hour {
		n, unit = int(d/(24*time.Hour)), "day"
	} else if d >= time.Hour {
		n, unit = int(d/time.Hour), "hour"
	}
	if n != 1 {
		unit += "s"
	}
	return strconv.Itoa(n) + " " + unit
}

// SignIn is the form of /sign-in.
type SignIn struct {
	Email, Password Input
	Faults          []Fault
	Notice          string
	NeedsSetup      bool   // no user exists yet, so the visitor needs the set-up link
	Next            string // address to open after the sign-in; "" for the first page
	// Provider is the text of the button that signs in by OpenID Connect. It is "" if there is no
	// button.
	Provider, ProviderURL string
}

// Join is the form to which a link with a token leads. It is for the first owner, for an
// invited person, or for a new password.
type Join struct {
	Title, Intro, Button  string
	Action                string
	Email, Name, Password Input
	HasName               bool
	Faults                []Fault
	Provider, ProviderURL string
}

// Account is the page of the visitor's own account.
type Account struct {
	Person        Person
	SignedIn      Moment
	Name          Input
	NameFaults    []Fault
	HasPassword   bool // false if the person signs in only with OpenID Connect
	Current, New  Input
	PasswordFault []Fault
	SecondFactor  bool
	Sessions      []Session
	Notice        string
}

// Others reports whether the user has sessions in other browsers.
func (a Account) Others() bool { return len(a.Sessions) > 1 }

// A Session is one browser in which the user is signed in.
type Session struct {
	Device, Agent, Address string
	SignedIn, Seen         Moment
	This                   bool
	EndURL                 string
}

// People is the page that lists the operator's people, or a tenant's members.
type People struct {
	Tabs               []Tab  // tabs of the tenant to which the members belong
	Title, Intro, Base string // Base is the path of the list
	Query              string
	Rows               []Row
	Next               string // address of the next page; "" on the last page
	Invitations        []Invitation
	MayWrite           bool
	Email              Input
	Role               Choice
	Mail               Checks // Name is "" if this node sends no e-mail
	Faults             []Fault
	Notice             string
}

// A Row is one person in a list.
type Row struct {
	Name, Email, Role, Status, URL string
	You, Disabled                  bool
	SignedIn                       Moment
}

// An Invitation is a link for a new person who has not used it yet.
type Invitation struct {
	Email, Role, By, WithdrawURL string
	Renews                       bool // the link sets a new password
	Expires                      Moment
}

// PersonPage is the page of one person.
type PersonPage struct {
	Tabs     []Tab // tabs of the tenant to which the member belongs
	Row      Row
	Base     string // the list
	BaseName string
	Created  Moment
	Linked   bool // signs in by OpenID Connect
	// SecondFactor says that the person has a second factor.
	SecondFactor bool
	MayWrite     bool
	Role         Choice
	Confirm      Input
	Faults       []Fault
	Notice       string
}

// NewLink is the page that shows a new link once: the link of an invitation, or the link for a
// new password.
type NewLink struct {
	Title, URL, For, Base, BaseName string
	Renews                          bool
	Expires                         Moment
	MessagesURL                     string // address of the page about the e-mail's delivery; "" if no e-mail is sent
}

func (n NewLink) hint() string {
	if n.Renews {
		return "The link is shown only once. Anyone who has it can set the new password."
	}
	return "The link is shown only once. Anyone who has it can set the name and password of the account."
}
