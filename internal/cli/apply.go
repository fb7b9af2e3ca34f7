package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// wholeTimeout is the minimum timeout of commands that read or change the whole configuration.
// A shorter --timeout has no effect on them.
const wholeTimeout = 90 * time.Second

// fromFiles has the arguments that name the files of a configuration.
type fromFiles struct {
	File  []string `required:"" short:"f" sep:"none" setting:"false" placeholder:"PATH" help:"YAML or JSON file, a folder of them, or - for standard input; may be repeated."`
	Prune bool     `setting:"false" help:"Delete what the files do not have: plans and tenants, and overrides and list entries of tenants. Sections that are left out stay."`
}

type exportCommand struct{ Connection }

// Help returns the text that --help shows after the flags.
func (exportCommand) Help() string {
	return "Prints what apply takes: applying it changes nothing. Drafts, keys, members and blocks are not part of it. " +
		"The table format is YAML."
}

// Run prints the configuration.
func (e exportCommand) Run(ctx context.Context, t Terminal) error {
	e.Timeout = max(e.Timeout, wholeTimeout)
	c, err := e.client(t)
	if err != nil {
		return err
	}
	a, err := c.get(ctx, path("configuration"), nil)
	if err != nil {
		return err
	}
	if c.output.Format == "table" {
		c.output.Format = "yaml"
	}
	return c.output.print(t, a.body, nil)
}

// An applied is the response to a request that applies a configuration.
type applied struct {
	Changes, Unmanaged []change
	Expired            []string
	Previews           []planPreview
}

type change struct {
	Pointer, Kind string
	Before, After json.RawMessage
}

type planPreview struct {
	Plan              string
	From, To, Clipped string
	Requests, Denied  int64
	WouldDeny         *bounds `json:"would_deny"`
	AtLeast           int64   `json:"would_deny_at_least"`
	Policies          []struct {
		Policy, Change, Certainty, Why string
		WouldDeny                      *bounds `json:"would_deny"`
		Notes                          []string
		Replay                         *struct{ Text string }
	}
}

type bounds struct{ Low, High int64 }

func (b *bounds) String() string {
	switch {
	case b == nil:
		return "an unknown number of"
	case b.Low == b.High:
		return fmt.Sprint(b.Low)
	}
	return fmt.Sprintf("%d to %d", b.Low, b.High)
}

type diffCommand struct {
	Connection
	fromFiles
}

// Help returns the text that --help shows after the flags.
func (diffCommand) Help() string {
	return "Shows what apply would change, what it would have denied in the last 24 hours, and what exists and is not in the files. " +
		"Ends with 0 if nothing differs, and with 11 if something does."
}

// open reads the files and creates a client for the installation.
func (f fromFiles) open(t Terminal, place Connection) (*client, *bundle, error) {
	place.Timeout = max(place.Timeout, wholeTimeout)
	c, err := place.client(t)
	if err != nil {
		return nil, nil, err
	}
	b, err := readBundle(t, f.File)
	return c, b, err
}

// send sends the configuration b to the installation, which applies it. If dryRun is true, the
// installation changes nothing and returns what it would change.
func (f fromFiles) send(ctx context.Context, c *client, b *bundle, dryRun bool) (applied, []byte, error) {
	query := url.Values{}
	if dryRun {
		query.Set("dry_run", "true")
	}
	if f.Prune {
		query.Set("prune", "true")
	}
	a, err := c.send(ctx, http.MethodPost, path("configuration", "apply"), query, b.sections, "")
	if err != nil {
		return applied{}, nil, b.located(err)
	}
	var is applied
	if err := json.Unmarshal(a.body, &is); err != nil {
		return applied{}, nil, fmt.Errorf("read the answer: %w", err)
	}
	return is, a.body, nil
}

// Run prints the differences between the files and the installation.
func (d diffCommand) Run(ctx context.Context, t Terminal) error {
	c, b, err := d.open(t, d.Connection)
	if err != nil {
		return err
	}
	is, document, err := d.send(ctx, c, b, true)
	if err != nil {
		return err
	}
	if err := c.output.print(t, document, is.write); err != nil {
		return err
	}
	b.ignored(t, is)
	if len(is.Changes)+len(is.Unmanaged) == 0 {
		t.say("no differences")
		return nil
	}
	return &Error{
		ExitDifferences, fmt.Errorf("changes to apply: %d; objects that are not in the files: %d", len(is.Changes), len(is.Unmanaged)),
	}
}

type applyCommand struct {
	Connection
	fromFiles
	DryRun bool `setting:"false" help:"Show what would change, and change nothing."`
}

// Help returns the text that --help shows after the flags.
func (applyCommand) Help() string {
	return "Makes the installation as the files say, in one transaction: all of it or nothing. Plans are published. " +
		"Repeating it changes nothing. What is not in the files stays, and is listed, unless --prune deletes it."
}

// Run applies the files.
func (y applyCommand) Run(ctx context.Context, t Terminal) error {
	c, b, err := y.open(t, y.Connection)
	if err != nil {
		return err
	}
	is, document, err := y.send(ctx, c, b, y.DryRun)
	if err != nil {
		return err
	}
	if err := c.output.print(t, document, is.write); err != nil {
		return err
	}
	b.ignored(t, is)
	switch {
	case len(is.Changes) == 0:
		t.say("nothing to change")
	case y.DryRun:
		t.say("dry run: nothing was changed; changes to apply: %d", len(is.Changes))
	default:
		t.say("applied; changes: %d", len(is.Changes))
	}
	return nil
}

// ignored prints a message about each override and list entry in the files that has already
// expired, because the server ignores it.
func (b *bundle) ignored(t Terminal, is applied) {
	for _, pointer := range is.Expired {
		t.say("%s: %s has ended and is ignored: remove it", b.place(pointer), plain(pointer))
	}
}

// write prints the result as text for people: the changes, the objects that are not in the files,
// and the previews.
func (is applied) write(w io.Writer) error {
	for _, c := range is.Changes {
		switch c.Kind {
		case "added":
			fmt.Fprintf(w, "+ %s %s\n", plain(c.Pointer), short(c.After))
		case "removed":
			fmt.Fprintf(w, "- %s %s\n", plain(c.Pointer), short(c.Before))
		default:
			fmt.Fprintf(w, "~ %s %s -> %s\n", plain(c.Pointer), short(c.Before), short(c.After))
		}
	}
	for _, c := range is.Unmanaged {
		fmt.Fprintf(w, "? %s is not in the files\n", plain(c.Pointer))
	}
	for _, p := range is.Previews {
		would := p.WouldDeny.String()
		if p.WouldDeny == nil {
			would = fmt.Sprintf("at least %d", p.AtLeast)
		}
		fmt.Fprintf(w, "plan %s, %s to %s: %d requests, %d denied; would deny %s\n",
			plain(p.Plan), p.From, p.To, p.Requests, p.Denied, would)
		if p.Clipped != "" {
			fmt.Fprintf(w, "  %s\n", plain(p.Clipped))
		}
		for _, policy := range p.Policies {
			if policy.Change == "same" {
				continue
			}
			fmt.Fprintf(w, "  policy %s (%s): would deny %s, %s: %s\n",
				plain(policy.Policy), policy.Change, policy.WouldDeny, policy.Certainty, plain(policy.Why))
			if policy.Replay != nil {
				fmt.Fprintf(w, "    %s\n", plain(policy.Replay.Text))
			}
			for _, n := range policy.Notes {
				fmt.Fprintf(w, "    %s\n", plain(n))
			}
		}
	}
	return nil
}

// short returns a JSON value on one line, shortened to at most 120 characters.
func short(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return ""
	}
	const most = 120
	text := []rune(plain(b.String()))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}
