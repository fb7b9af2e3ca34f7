package alerts

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

var kindNames = map[alerts.Kind]string{alerts.Webhook: "Webhook", alerts.Slack: "Slack", alerts.Email: "E-mail"}

// mailto is the start of the address of an e-mail channel. Pages show and accept such an
// address without this start.
const mailto = "mailto:"

// address returns the address of a channel for display. The path of a Slack address is a
// secret, so address hides the path.
func address(ch *alerts.Channel) string {
	if ch.Kind == alerts.Slack {
		return alerts.HideAddress(ch.URL)
	}
	return strings.TrimPrefix(ch.URL, mailto)
}

func (w *pages) listChannels(c echo.Context) error {
	s := w.scope(c)
	rows, err := w.cfg.Alerts.Channels(c.Request().Context(), s.owner, alerts.Filter{Limit: alerts.MaxChannels})
	if err != nil {
		return err
	}
	newURL := ""
	if s.write {
		newURL = s.base + "/channels/new"
	}
	v := views.AlertChannels{AlertHead: w.head(c, "/channels")}
	v.List = web.NewList(c, rows, func(ch alerts.Channel) string { return ch.ID }, newURL, func(ch alerts.Channel) views.AlertChannelRow {
		r := views.AlertChannelRow{
			Name: ch.Name, Kind: kindNames[ch.Kind], Address: address(&ch), URL: s.base + "/channels/" + ch.ID,
			Created: views.NewMoment(ch.CreatedAt, w.Now()),
		}
		if s.write {
			r.TestURL = r.URL + "/test"
		}
		return r
	})
	v.Empty = views.Empty{
		Title: "No channels",
		Text:  "A channel is where messages go: a webhook, a channel of Slack, or an e-mail address. Without one, alerts are only listed.",
	}
	if s.write {
		v.Empty.Link = views.Link{Text: "Add a channel", URL: newURL}
	}
	return w.Render(c, http.StatusOK, views.AlertChannelsPage(w.page(c, "Channels"), v))
}

// channelForm returns the form of a new channel.
func (w *pages) channelForm(c echo.Context) views.AlertChannelForm {
	s := w.scope(c)
	v := views.AlertChannelForm{
		AlertHead: w.head(c, "/channels"), Title: "New channel", Button: "Add the channel", Action: s.base + "/channels",
		Back: s.base + "/channels",
		Kind: views.Choice{Name: "kind", Label: "Kind", Value: string(alerts.Webhook), Options: []views.Option{
			{
				Value: string(alerts.Webhook), Label: "Webhook",
				Hint: "Signed JSON by the Standard Webhooks specification, for your own program or an incident tool.",
			},
			{
				Value: string(alerts.Slack), Label: "Slack",
				Hint: "An incoming webhook of Slack, Mattermost, or another program that accepts the same JSON.",
			},
		}},
	}
	hint := "Begins with https://."
	if w.cfg.Alerts.SendsMail() {
		mail := views.Option{Value: string(alerts.Email), Label: "E-mail", Hint: "Plain text to one address, which can be a list."}
		if hint += " For e-mail: ops@example.com."; !s.operator() {
			mail.Hint = "Plain text to one member of the tenant."
			hint = "Begins with https://. For e-mail: the address of a member."
		}
		v.Kind.Options = append(v.Kind.Options, mail)
	} else {
		v.NoMail = "E-mail is not offered: this server has no mail server."
		if s.operator() {
			v.NoMail += " Set HEADGATE_SMTP_ADDR and HEADGATE_SMTP_FROM, and restart the server."
		} else {
			v.NoMail += " Ask the operator of the server."
		}
		v.MailGuide = "/docs/guides/alerts#e-mail"
	}
	v.Fields = []views.Input{views.TextInput("name", "Name", "", "For people: “on call”."), views.TextInput("url", "Address", "", hint)}
	return v
}

func (w *pages) showChannelForm(c echo.Context, status int, v views.AlertChannelForm) error {
	return w.Render(c, status, views.AlertChannelFormPage(w.page(c, v.Title, views.Link{Text: "Channels", URL: v.Back}), v))
}

func (w *pages) newChannel(c echo.Context) error {
	return w.showChannelForm(c, http.StatusOK, w.channelForm(c))
}

// A newSecret has the data of the page that shows a new secret once.
type newSecret struct {
	Secret  string
	Rotated bool
}

// createChannel creates a channel. If the channel is a webhook, the next page shows its secret
// once.
func (w *pages) createChannel(c echo.Context, f url.Values) error {
	s, v := w.scope(c), w.channelForm(c)
	d := readChannel(f, &v, alerts.ChannelDocument{Kind: alerts.Kind(f.Get("kind"))})
	v.Kind.Choose(f.Get("kind"))
	ch, err := w.cfg.Alerts.CreateChannel(c.Request().Context(), s.owner, d)
	switch {
	case err == nil && ch.Secret != "":
		return w.ShowOnce(c, s.base+"/channels/"+ch.ID+"/secret", newSecret{Secret: ch.Secret})
	case err == nil:
		return w.done(c, s.base+"/channels/"+ch.ID, "alert-channel-created")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showChannelForm(c, status, v) })
}

// readChannel returns d, with the values of the form in place of its own.
func readChannel(f url.Values, v *views.AlertChannelForm, d alerts.ChannelDocument) alerts.ChannelDocument {
	for i := range v.Fields {
		field := &v.Fields[i]
		field.Value = f.Get(field.Name)
		switch text := strings.TrimSpace(field.Value); field.Name {
		case "name":
			d.Name = text
		case "url":
			if d.URL = text; d.Kind == alerts.Email && !strings.HasPrefix(text, mailto) {
				d.URL = mailto + text
			}
		}
	}
	return d
}

func (w *pages) channelOf(c echo.Context, s scope) (alerts.Channel, error) {
	id, err := web.PathID(c, "channel")
	if err != nil {
		return alerts.Channel{}, err
	}
	return w.cfg.Alerts.Channel(c.Request().Context(), s.owner, id)
}

// changeChannelForm returns the page of a channel: its form and its newest messages.
func (w *pages) changeChannelForm(c echo.Context, s scope, ch *alerts.Channel) (views.AlertChannelForm, error) {
	v := w.channelForm(c)
	v.Title, v.Button, v.Action = ch.Name, "Save the channel", s.base+"/channels/"+ch.ID
	v.Version, v.Exists, v.MayWrite, v.Notice = strconv.FormatInt(ch.Version, 10), true, s.write, web.Notice(c)
	v.KindName, v.Address, v.HasSecret = kindNames[ch.Kind], address(ch), ch.Kind == alerts.Webhook
	if w.Now().Before(ch.FormerUntil) {
		v.Former = views.NewMoment(ch.FormerUntil, w.Now())
	}
	for i := range v.Fields {
		switch v.Fields[i].Name {
		case "name":
			v.Fields[i].Value = ch.Name
		case "url":
			v.Fields[i].Value = v.Address
		}
	}
	var err error
	v.Messages, err = w.messagesOf(c.Request().Context(), s, ch.ID)
	return v, err
}

func (w *pages) oneChannel(c echo.Context) error {
	s := w.scope(c)
	ch, err := w.channelOf(c, s)
	if err != nil {
		return err
	}
	v, err := w.changeChannelForm(c, s, &ch)
	if err != nil {
		return err
	}
	return w.showChannelForm(c, http.StatusOK, v)
}

func (w *pages) changeChannel(c echo.Context, f url.Values) error {
	s := w.scope(c)
	ch, err := w.channelOf(c, s)
	if err != nil {
		return err
	}
	v, err := w.changeChannelForm(c, s, &ch)
	if err != nil {
		return err
	}
	version, err := formVersion(f)
	if err != nil {
		return err
	}
	d := readChannel(f, &v, ch.ChannelDocument)
	if _, err = w.cfg.Alerts.ChangeChannel(c.Request().Context(), s.owner, ch.ID, version, d); err == nil {
		return w.done(c, v.Action, "alert-channel-saved")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showChannelForm(c, status, v) })
}

// formVersion returns the version of an object from its form. It is the version that the
// visitor saw when the form was opened.
func formVersion(f url.Values) (int64, error) {
	n, err := strconv.ParseInt(f.Get("version"), 10, 64)
	if err != nil {
		return 0, problem.New(problem.Malformed, "the form does not say which version it changes")
	}
	return n, nil
}

// testChannel queues a test message, and redirects to the page that shows whether the message
// was delivered.
func (w *pages) testChannel(c echo.Context, _ url.Values) error {
	s := w.scope(c)
	ch, err := w.channelOf(c, s)
	if err != nil {
		return err
	}
	d, err := w.cfg.Alerts.Test(c.Request().Context(), s.owner, ch.ID)
	if err != nil {
		return err
	}
	return w.done(c, s.base+"/messages/"+d.ID, "alert-test-queued")
}

func (w *pages) rotateSecret(c echo.Context, _ url.Values) error {
	s := w.scope(c)
	ch, err := w.channelOf(c, s)
	if err == nil {
		ch, err = w.cfg.Alerts.RotateSecret(c.Request().Context(), s.owner, ch.ID)
	}
	if err != nil {
		return err
	}
	return w.ShowOnce(c, s.base+"/channels/"+ch.ID+"/secret", newSecret{Secret: ch.Secret, Rotated: true})
}

// showSecret shows the secret of a webhook. No other page shows it.
func (w *pages) showSecret(c echo.Context) error {
	s := w.scope(c)
	ch, err := w.channelOf(c, s)
	if err != nil {
		return err
	}
	back := s.base + "/channels/" + ch.ID
	var n newSecret
	if !w.ShownOnce(c, &n) {
		return w.GoneOnce(c, "Headgate shows a secret once. If you have not stored it, rotate it.", views.Link{Text: ch.Name, URL: back})
	}
	v := views.AlertSecret{
		AlertHead: w.head(c, "/channels"), Name: ch.Name, Secret: n.Secret, Rotated: n.Rotated, Back: back,
		MayTest: s.write,
	}
	if n.Rotated {
		v.Former = views.NewMoment(ch.FormerUntil, w.Now().Add(-time.Second))
	}
	return w.Render(c, http.StatusOK, views.AlertSecretPage(w.page(c, "Secret", views.Link{Text: "Channels", URL: s.base + "/channels"}), v))
}

func (w *pages) confirmChannel(c echo.Context) error {
	s := w.scope(c)
	ch, err := w.channelOf(c, s)
	if err != nil {
		return err
	}
	back := s.base + "/channels/" + ch.ID
	v := views.Confirm{
		Head: w.head(c, "").Tenant, Title: "Delete the channel " + ch.Name + "?", Button: "Delete the channel", Bad: true,
		Action: back + "/delete", Back: back,
		Text: []string{"Its messages are deleted too, also those that wait. Rules that send to it stay."},
	}
	return w.Render(c, http.StatusOK, views.ConfirmPage(w.page(c, "Delete", views.Link{Text: "Channels", URL: s.base + "/channels"}), v))
}

func (w *pages) deleteChannel(c echo.Context, _ url.Values) error {
	s := w.scope(c)
	ch, err := w.channelOf(c, s)
	if err != nil {
		return err
	}
	if err := w.cfg.Alerts.DeleteChannel(c.Request().Context(), s.owner, ch.ID); err != nil {
		return err
	}
	return w.done(c, s.base+"/channels", "alert-channel-deleted")
}
