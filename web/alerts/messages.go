package alerts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

var eventWords = map[alerts.Event]string{
	alerts.EventBegan: "Alert began", alerts.EventResolved: "Alert ended", alerts.EventTest: "Test",
	alerts.EventInvited: "Invitation",
}

var deliveryWords = map[alerts.DeliveryStatus]struct{ text, tone string }{
	alerts.Waiting: {"waiting", "warn"}, alerts.Delivered: {"delivered", "good"}, alerts.Dead: {"given up", "bad"},
}

// listMessages shows the alert messages, newest first. A parameter of the address
// selects the messages with one status.
func (w *pages) listMessages(c echo.Context) error {
	ctx, s := c.Request().Context(), w.scope(c)
	status := alerts.DeliveryStatus(c.QueryParam("status"))
	v := views.AlertMessages{
		AlertHead: w.head(c, "/messages"), Base: s.base + "/messages",
		Status: views.Select{Name: "status", Label: "Status", Optional: true, Options: []views.Option{{Label: "all"}}},
	}
	for _, known := range alerts.DeliveryStatuses {
		v.Status.Options = append(v.Status.Options, views.Option{Value: string(known), Label: deliveryWords[known].text})
	}
	if slices.Contains(alerts.DeliveryStatuses, status) {
		v.Status.Value = string(status)
	} else if status != "" {
		v.Status.Error, status = "must be one of the list; all are shown", ""
	}
	rows, err := w.cfg.Alerts.Deliveries(ctx, s.owner, alerts.Filter{After: web.After(c), Limit: web.PageRows + 1, Status: status})
	if err != nil {
		return err
	}
	channels, err := w.channelNames(ctx, s)
	if err != nil {
		return err
	}
	v.List = web.NewList(c, rows, func(d alerts.Delivery) string { return d.ID }, "", func(d alerts.Delivery) views.AlertMessageRow {
		return w.messageRow(s, &d, channels)
	})
	v.Empty = views.Empty{Title: "No messages", Text: "Messages are listed for 90 days. Send a test message from the page of a channel."}
	if status != "" {
		v.Empty.Title = "No messages are " + deliveryWords[status].text
	}
	return w.Render(c, http.StatusOK, views.AlertMessagesPage(w.page(c, "Messages"), v))
}

// messagesOf returns the newest messages of the alert or channel that has this ID.
func (w *pages) messagesOf(ctx context.Context, s scope, id string) ([]views.AlertMessageRow, error) {
	list, err := w.cfg.Alerts.Deliveries(ctx, s.owner, alerts.Filter{Of: id, Limit: shownMessages})
	if err != nil {
		return nil, err
	}
	channels, err := w.channelNames(ctx, s)
	var rows []views.AlertMessageRow
	for i := range list {
		rows = append(rows, w.messageRow(s, &list[i], channels))
	}
	return rows, err
}

// shownMessages is how many messages the page of an alert or a channel shows.
const shownMessages = 20

func (w *pages) messageRow(s scope, d *alerts.Delivery, channels map[string]string) views.AlertMessageRow {
	words := deliveryWords[d.Status]
	r := views.AlertMessageRow{
		URL: s.base + "/messages/" + d.ID, Event: eventWords[d.Event], Channel: cmp.Or(channels[d.ChannelID], "e-mail"),
		Status: words.text, Tone: words.tone, Attempts: strconv.Itoa(d.Attempts), Answer: d.Answer, Created: views.NewMoment(d.CreatedAt,
			w.Now()),
	}
	if d.Status == alerts.Waiting && d.Attempts > 0 {
		r.Due = views.NewMoment(d.DueAt, w.Now())
	}
	return r
}

// oneMessage shows a message with its attempts.
func (w *pages) oneMessage(c echo.Context) error {
	ctx, s := c.Request().Context(), w.scope(c)
	id, err := web.PathID(c, "message")
	if err != nil {
		return err
	}
	d, attempts, err := w.cfg.Alerts.Delivery(ctx, s.owner, id)
	if err != nil {
		return err
	}
	channels, err := w.channelNames(ctx, s)
	if err != nil {
		return err
	}
	v := views.AlertMessage{
		AlertHead: w.head(c, "/messages"), AlertMessageRow: w.messageRow(s, &d, channels), ID: d.ID, Body: indented(d.Body),
		Notice: web.Notice(c),
	}
	if d.ChannelID != "" {
		v.ChannelURL = s.base + "/channels/" + d.ChannelID
	}
	if d.IncidentID != "" {
		v.AlertURL = s.base + "/" + d.IncidentID
	}
	if s.write {
		v.RepeatURL = v.URL + "/repeat"
	}
	for _, a := range attempts {
		v.Log = append(v.Log, views.AlertAttempt{At: views.NewMoment(a.At, w.Now()), Answer: a.Answer})
	}
	return w.Render(c, http.StatusOK, views.AlertMessagePage(w.page(c, "Message", views.Link{Text: "Messages", URL: s.base + "/messages"}), v))
}

// indented returns the body of a message, formatted for the page.
func indented(body []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		return string(body)
	}
	return b.String()
}

// repeatMessage is POST …/messages/:message/repeat.
func (w *pages) repeatMessage(c echo.Context, _ url.Values) error {
	s := w.scope(c)
	id, err := web.PathID(c, "message")
	if err != nil {
		return err
	}
	if _, err := w.cfg.Alerts.Repeat(c.Request().Context(), s.owner, id); err != nil {
		return err
	}
	return w.done(c, s.base+"/messages/"+id, "alert-message-queued")
}
