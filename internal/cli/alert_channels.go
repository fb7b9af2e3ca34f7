package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

type alertChannelsCommand struct {
	List         channelsList   `cmd:"" help:"List channels, without their secrets."`
	Get          channelsGet    `cmd:"" help:"Show a channel, without its secret."`
	Create       channelsCreate `cmd:"" help:"Create a channel, and print the secret of a webhook once: headgate alerts channels create --name 'on call' --to https://hooks.example.com/headgate"`
	Set          channelsSet    `cmd:"" help:"Change the name or the address of a channel: headgate alerts channels set 0190… --name operations"`
	RotateSecret channelsRotate `cmd:"" help:"Give a webhook a new secret, and print it once. For 24 hours the old one signs messages too."`
	Test         channelsTest   `cmd:"" help:"Send a test message to a channel."`
	Delete       channelsDelete `cmd:"" help:"Delete a channel with its messages: headgate alerts channels delete 0190… --yes"`
}

var channelColumns = []Column{
	{"ID", "id"}, {"NAME", "channel.name"}, {"KIND", "channel.kind"}, {"URL", "channel.url"}, {"UPDATED", "updated_at"},
}

// aChannel has the arguments of a command for one channel.
type aChannel struct {
	owner
	ID string `arg:"" help:"The channel's id, from headgate alerts channels list."`
}

func (c aChannel) path(segments ...string) string {
	return c.owner.path(append([]string{"alert-channels", c.ID}, segments...)...)
}

type channelsList struct {
	Connection
	owner
	Limit int `setting:"false" help:"How many rows. Default: all."`
}

// Run lists channels.
func (l channelsList) Run(ctx context.Context, t Terminal) error {
	return l.ownRows(ctx, t, l.Connection, "alert-channels", nil, l.Limit, channelColumns)
}

type channelsGet struct {
	Connection
	aChannel
}

// Run shows a channel.
func (g channelsGet) Run(ctx context.Context, t Terminal) error {
	return g.show(ctx, t, g.Connection, channelColumns, "alert-channels", g.ID)
}

type channelsCreate struct {
	writing
	owner
	Name string `required:"" setting:"false" help:"Name for people."`
	Kind string `setting:"false" enum:"webhook,slack,email" default:"webhook" help:"webhook (signed JSON), slack or email."`
	URL  string `required:"" setting:"false" name:"to" placeholder:"URL" help:"Address that begins with https://; for email, mailto: and the address."`
}

// Run creates a channel.
func (n channelsCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	return c.channelSecret(ctx, n.path("alert-channels"), object{"name": n.Name, "kind": n.Kind, "url": n.URL})
}

// channelSecret sends a POST request and prints the channel in the response, with its secret.
// In the table format, it prints only the secret to standard output, so that a script can use
// it. Only webhooks have a secret.
func (c *client) channelSecret(ctx context.Context, at string, body any) error {
	a, sent, err := c.write(ctx, http.MethodPost, at, body, "")
	if err != nil || !sent {
		return err
	}
	if c.output.Format != "table" {
		return c.output.print(c.terminal, a.body, nil)
	}
	var is struct {
		Secret  string
		Channel struct {
			ID      string
			Channel struct{ Name string }
		}
	}
	if err := json.Unmarshal(a.body, &is); err != nil || is.Channel.ID == "" {
		return fmt.Errorf("the answer has no channel: %w", err)
	}
	if is.Secret == "" {
		c.terminal.say("channel %s (%s); it has no secret", plain(is.Channel.Channel.Name), is.Channel.ID)
		return nil
	}
	c.terminal.say("channel %s (%s); its secret, shown once:", plain(is.Channel.Channel.Name), is.Channel.ID)
	_, err = fmt.Fprintln(c.terminal.Stdout, is.Secret)
	return err
}

type channelsSet struct {
	writing
	aChannel
	Name string `setting:"false" help:"Name for people."`
	URL  string `setting:"false" name:"to" placeholder:"URL" help:"Address that begins with https://; for email, mailto: and the address."`
}

// Run changes the fields for which a flag was given.
func (s channelsSet) Run(ctx context.Context, t Terminal) error {
	c, err := s.client(t)
	if err != nil {
		return err
	}
	patch := object{}
	patch.set("name", s.Name)
	patch.set("url", s.URL)
	if len(patch) == 0 {
		return usage("nothing to change: give --name or --to")
	}
	return c.changeRead(ctx, http.MethodPatch, s.path(), patch, channelColumns...)
}

type channelsRotate struct {
	writing
	aChannel
}

// Run gives a webhook a new secret.
func (r channelsRotate) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	return c.channelSecret(ctx, r.path("rotate-secret"), nil)
}

type channelsTest struct {
	writing
	aChannel
}

// Run queues a test message.
func (e channelsTest) Run(ctx context.Context, t Terminal) error {
	c, err := e.client(t)
	if err != nil {
		return err
	}
	return c.queue(ctx, e.path("test"))
}

// queue sends a POST request that queues an alert message. It prints the message, and says where to
// look up whether the message was delivered.
func (c *client) queue(ctx context.Context, at string) error {
	a, sent, err := c.write(ctx, http.MethodPost, at, nil, "")
	if err != nil || !sent {
		return err
	}
	var is struct{ ID string }
	if err := json.Unmarshal(a.body, &is); err != nil {
		return fmt.Errorf("read %s: %w", at, err)
	}
	c.terminal.say("the message is queued; headgate alerts deliveries get %s shows the answer of the receiver", is.ID)
	return c.output.rows(c.terminal, a.body, "", deliveryColumns...)
}

type channelsDelete struct {
	writing
	aChannel
	Yes bool `setting:"false" help:"Delete it. It cannot be undone."`
}

// Run deletes a channel.
func (d channelsDelete) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	if err := confirmed(d.Yes, d.DryRun, "deletes channel "+d.ID+" with its messages"); err != nil {
		return err
	}
	return c.remove(ctx, d.path(), "", "channel "+d.ID)
}

type alertDeliveriesCommand struct {
	List   deliveriesList   `cmd:"" help:"List messages, newest first; dead ones were given up: headgate alerts deliveries list --status dead"`
	Get    deliveriesGet    `cmd:"" help:"Show a message with the answer to each attempt."`
	Repeat deliveriesRepeat `cmd:"" help:"Send a message again: headgate alerts deliveries repeat 0190…"`
}

var deliveryColumns = []Column{
	{"ID", "id"},
	{"EVENT", "event"},
	{"STATUS", "status"},
	{"ATTEMPTS", "attempts"},
	{"ANSWER", "answer"},
	{"CHANNEL", "channel_id"},
	{"CREATED", "created_at"},
	{"DUE", "due_at"},
	{"ENDED", "ended_at"},
}

type deliveriesList struct {
	Connection
	owner
	Status string `setting:"false" enum:",waiting,delivered,dead" default:"" help:"waiting, delivered or dead."`
	Limit  int    `setting:"false" help:"How many rows. Default: all."`
}

// Run lists messages.
func (l deliveriesList) Run(ctx context.Context, t Terminal) error {
	return l.ownRows(ctx, t, l.Connection, "alert-deliveries", map[string]string{"status": l.Status}, l.Limit, deliveryColumns)
}

// aDelivery has the arguments of a command for one message.
type aDelivery struct {
	owner
	ID string `arg:"" help:"The message's id, from headgate alerts deliveries list."`
}

type deliveriesGet struct {
	Connection
	aDelivery
}

// Run shows a message and its attempts.
func (g deliveriesGet) Run(ctx context.Context, t Terminal) error {
	return g.show(ctx, t, g.Connection, append(deliveryColumns[:len(deliveryColumns):len(deliveryColumns)], Column{"LOG", "log"}),
		"alert-deliveries", g.ID)
}

type deliveriesRepeat struct {
	writing
	aDelivery
}

// Run queues a message again.
func (r deliveriesRepeat) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	return c.queue(ctx, r.path("alert-deliveries", r.ID, "repeat"))
}

type maintenanceCommand struct {
	List   maintenanceList   `cmd:"" help:"List maintenance windows."`
	Get    maintenanceGet    `cmd:"" help:"Show a maintenance window."`
	Create maintenanceCreate `cmd:"" help:"Create a maintenance window: headgate alerts maintenance create --name 'Upgrade of the database' --starts 2027-01-31T22:00:00Z --lasts 1h"`
	Delete maintenanceDelete `cmd:"" help:"Delete a maintenance window, so that it ends at once."`
}

var maintenanceColumns = []Column{
	{"ID", "id"},
	{"NAME", "window.name"},
	{"STARTS", "window.starts_at"},
	{"ENDS", "window.ends_at"},
	{"REPEAT", "window.repeat"},
	{"RULES", "window.rules"},
}

type maintenanceList struct {
	Connection
	owner
	Limit int `setting:"false" help:"How many rows. Default: all."`
}

// Run lists maintenance windows.
func (l maintenanceList) Run(ctx context.Context, t Terminal) error {
	return l.ownRows(ctx, t, l.Connection, "alert-maintenance", nil, l.Limit, maintenanceColumns)
}

// aWindow has the arguments of a command for one maintenance window.
type aWindow struct {
	owner
	ID string `arg:"" help:"The window's id, from headgate alerts maintenance list."`
}

type maintenanceGet struct {
	Connection
	aWindow
}

// Run shows a maintenance window.
func (g maintenanceGet) Run(ctx context.Context, t Terminal) error {
	return g.show(ctx, t, g.Connection, maintenanceColumns, "alert-maintenance", g.ID)
}

type maintenanceCreate struct {
	writing
	owner
	Name   string        `required:"" setting:"false" help:"Name for people."`
	Starts string        `setting:"false" placeholder:"TIME" help:"When it begins, like 2027-01-31T22:00:00Z. Default: now."`
	Lasts  time.Duration `required:"" setting:"false" help:"How long it lasts, like 1h."`
	Repeat string        `setting:"false" enum:",daily,weekly" default:"" help:"daily or weekly. Default: once."`
	Rule   []string      `setting:"false" placeholder:"ID" help:"Only this rule; may be repeated. Default: all rules of the owner."`
}

// Run creates a maintenance window.
func (n maintenanceCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	starts := time.Now().UTC()
	if n.Starts != "" {
		if starts, err = time.Parse(time.RFC3339, n.Starts); err != nil {
			return usage("--starts: %q is not a time like 2027-01-31T22:00:00Z", n.Starts)
		}
	}
	if n.Lasts <= 0 {
		return usage("--lasts: is %s, and must be more than 0", n.Lasts)
	}
	body := object{
		"name": n.Name, "starts_at": starts.UTC().Format(time.RFC3339), "ends_at": starts.Add(n.Lasts).UTC().Format(time.RFC3339),
	}
	body.set("repeat", n.Repeat)
	if len(n.Rule) > 0 {
		body["rules"] = n.Rule
	}
	return c.create(ctx, n.path("alert-maintenance"), body, maintenanceColumns...)
}

type maintenanceDelete struct {
	writing
	aWindow
}

// Run deletes a maintenance window.
func (d maintenanceDelete) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	return c.remove(ctx, d.path("alert-maintenance", d.ID), "", "maintenance window "+d.ID)
}
