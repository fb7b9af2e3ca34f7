package tenants

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const reservations = "/reservations"

// longestPlace is the maximum length of the parameter after in the address of the list.
const longestPlace = 64

func (w *pages) listReservations(c echo.Context) error {
	t, ctx := web.TenantOf(c), c.Request().Context()
	after := c.QueryParam("after")
	if len(after) > longestPlace {
		after = ""
	}
	rows, err := w.cfg.Usage.Reservations(ctx, t.ID, after, web.PageRows+1)
	v := views.List[views.ReservationRow]{}
	switch {
	case problem.Is(err, problem.Unavailable):
		v.Notice = web.Notice(c)
		v.Empty = views.Empty{Title: "The reservations cannot be read", Text: "The limiter does not answer. Reload the page later."}
	case err != nil:
		return err
	default:
		v = web.NewList(c, rows, func(r usage.Reservation) string { return r.Place }, "", func(r usage.Reservation) views.ReservationRow {
			return w.reservationRow(c, &r)
		})
		v.Empty = views.Empty{
			Title: "No open reservations",
			Text: "A reservation charges an estimate, or holds places of a concurrency limit, until it is settled, " +
				"given back, or its time has passed.",
		}
	}
	v.Head = w.TenantHead(c, reservations)
	return w.Render(c, http.StatusOK, views.ReservationsPage(w.TenantPage(c, "Reservations"), v))
}

func (w *pages) reservationRow(c echo.Context, r *usage.Reservation) views.ReservationRow {
	row := views.ReservationRow{
		ID: r.ID, URL: web.TenantURL(web.TenantOf(c), reservations+"/"+url.PathEscape(r.ID)),
		Since: views.NewMoment(enforcement.Instant(r.CreatedAt), w.Now()),
		Until: views.NewMoment(enforcement.Instant(r.ExpiresAt), w.Now()),
	}
	for i, l := range r.Limits {
		of := views.ReservedLimit{
			Policy: l.Policy, Limit: l.Limit, Estimate: unitsOf(l.Estimate, r.Places[i]), Cost: unitsOf(l.Cost, r.Places[i]),
		}
		switch of.Words = l.Policy + ", limit " + l.Limit + ": "; {
		case r.Places[i] && l.Cost > 0:
			of.Words += "holds " + of.Cost
		case l.Cost != l.Estimate:
			of.Words += of.Cost + " of " + of.Estimate
		default:
			of.Words += of.Cost
		}
		row.Limits = append(row.Limits, of)
	}
	return row
}

// unitsOf returns a number of units, or of places, as text.
func unitsOf(n int64, places bool) string {
	what := "unit"
	if places {
		what = "place"
	}
	if n != 1 {
		what += "s"
	}
	return views.Count(n).Exact + " " + what
}

// reservationStates has the words for the states of reservations that have ended.
var reservationStates = map[enforcement.ReservationState]string{
	enforcement.ReservationSettled: "settled", enforcement.ReservationReleased: "given back",
	enforcement.ReservationExpired: "ended by itself",
}

func (w *pages) showReservation(c echo.Context) error {
	r, err := w.reservation(c)
	if err != nil {
		return err
	}
	row := w.reservationRow(c, &r)
	v := views.ReservationView{
		Head: w.TenantHead(c, reservations), Notice: web.Notice(c), ID: r.ID, Limits: row.Limits, Ended: reservationStates[r.State],
		Facts: []views.MomentFact{{Name: "Since", Value: row.Since}, {Name: "Until", Value: row.Until}},
	}
	if r.EndedAt != 0 {
		v.Facts[1] = views.MomentFact{Name: "Ended", Value: views.NewMoment(enforcement.Instant(r.EndedAt), w.Now())}
	} else if web.MayInTenant(c, accounts.ExceptionsWrite) {
		v.Actions = []views.Link{
			{Text: "Extend", URL: row.URL + "/extend"}, {Text: "Settle", URL: row.URL + "/settle"}, {Text: "Give back", URL: row.URL + "/release"},
		}
	}
	back := views.Link{Text: "Reservations", URL: web.TenantURL(web.TenantOf(c), reservations)}
	return w.Render(c, http.StatusOK, views.ReservationPage(w.TenantPage(c, r.ID, back), v))
}

func (w *pages) reservation(c echo.Context) (usage.Reservation, error) {
	return w.cfg.Usage.Reservation(c.Request().Context(), web.TenantOf(c).ID, c.Param("reservation"))
}

// extensions are the durations that the form offers. They count from now.
var extensions = []views.Option{
	{Value: "1m", Label: "a minute from now"},
	{Value: "5m", Label: "5 minutes from now"},
	{Value: "15m", Label: "15 minutes from now"},
	{Value: "1h", Label: "an hour from now"},
	{Value: "6h", Label: "6 hours from now"},
	{Value: "24h", Label: "a day from now"},
}

// costField is the start of the names of form fields for attributes. Policies with cost_from read
// their cost from these attributes.
const costField = "a."

// A reservationForm is a form that changes a reservation. It has the fields that the change needs,
// and a text that says what the change does.
type reservationForm struct {
	path   string // "/extend"
	done   string // name of the notice
	fields []string
	show   func(*usage.Reservation, url.Values) views.Confirm
	apply  func(*usage.ReservationChange, *usage.Reservation, url.Values) error
}

var reservationForms = []reservationForm{
	{"/extend", "reservation-extended", []string{"life"}, func(_ *usage.Reservation, f url.Values) views.Confirm {
		life := f.Get("life")
		if life == "" {
			life = "5m"
		}
		return views.Confirm{
			Title: "Extend the reservation?", Button: "Extend the reservation",
			Text:        []string{"It ends at the new time, also if that is earlier than now. It holds its places until then."},
			WithOverlap: true, Overlap: views.Select{Name: "life", Label: "Ends", Value: life, Options: extensions},
		}
	}, func(change *usage.ReservationChange, _ *usage.Reservation, f url.Values) (err error) {
		if change.Extend, err = time.ParseDuration(f.Get("life")); err != nil || change.Extend == 0 {
			return problem.At("/ttl_ms", "must be one of the list")
		}
		return nil
	}},
	{"/settle", "reservation-settled", []string{"cost"}, func(r *usage.Reservation, f url.Values) views.Confirm {
		v := views.Confirm{
			Title: "Settle the reservation?", Button: "Settle the reservation",
			Text: []string{"The cost replaces the estimate in the windows that were charged, and the places are free. You cannot undo this."},
			Inputs: []views.Input{
				views.OptionalInput("cost", "Cost", f.Get("cost"), "Units. Empty: the estimate stays."),
			},
		}
		for _, name := range r.CostsFrom {
			v.Inputs = append(v.Inputs, views.OptionalInput(costField+name, name, f.Get(costField+name),
				"Units of the policies that read their cost from this attribute. Empty: as with the check."))
		}
		return v
	}, func(change *usage.ReservationChange, r *usage.Reservation, f url.Values) error {
		change.Settle, change.Attributes = true, map[string]string{}
		if text := strings.TrimSpace(f.Get("cost")); text != "" {
			cost, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
			if change.Cost = &cost; err != nil {
				return problem.At("/cost", "must be a whole number")
			}
		}
		for _, name := range r.CostsFrom {
			if value := strings.TrimSpace(f.Get(costField + name)); value != "" {
				change.Attributes[name] = value
			}
		}
		return nil
	}},
	{"/release", "reservation-released", nil, func(*usage.Reservation, url.Values) views.Confirm {
		return views.Confirm{
			Title: "Give the reservation back?", Button: "Give it back", Bad: true,
			Text: []string{
				"What it charged is returned to the windows that are still open, and its places are free. The holder is not told. " +
					"You cannot undo this.",
			},
		}
	}, func(*usage.ReservationChange, *usage.Reservation, url.Values) error { return nil }},
}

// confirmReservation returns the page that asks for confirmation before a reservation is changed.
func (w *pages) confirmReservation(c echo.Context, form reservationForm, r *usage.Reservation, f url.Values) views.Confirm {
	t, v := web.TenantOf(c), form.show(r, f)
	v.Head, v.Back = w.TenantHead(c, reservations), web.TenantURL(t, reservations+"/"+url.PathEscape(r.ID))
	v.Action = v.Back + form.path
	v.Facts = []views.Fact{{Name: "Reservation", Value: r.ID}}
	for i, l := range r.Limits {
		v.Facts = append(v.Facts, views.Fact{Name: fmt.Sprintf("%s, limit %s", l.Policy, l.Limit), Value: unitsOf(l.Cost, r.Places[i])})
	}
	reason := reasonInput(f, true)
	reason.Hint = "For the audit log, which the tenant sees too."
	v.Inputs = append(v.Inputs, reason)
	return v
}

func (w *pages) showReservationForm(c echo.Context, status int, v views.Confirm, id string) error {
	above := []views.Link{{Text: "Reservations", URL: web.TenantURL(web.TenantOf(c), reservations)}, {Text: id, URL: v.Back}}
	return w.Render(c, status, views.ConfirmPage(w.TenantPage(c, v.Button, above...), v))
}

// reservationRoutes returns the routes of the pages about reservations.
func reservationRoutes(w *pages) []web.Route {
	const one = web.TenantPath + reservations + "/:reservation"
	rows := []web.Route{
		web.Get(web.TenantPath+reservations, accounts.TenantRead, w.listReservations),
		web.Get(one, accounts.TenantRead, w.showReservation),
	}
	for _, form := range reservationForms {
		rows = append(rows, web.Get(one+form.path, accounts.ExceptionsWrite, func(c echo.Context) error {
			r, err := w.reservation(c)
			if err != nil {
				return err
			}
			return w.showReservationForm(c, http.StatusOK, w.confirmReservation(c, form, &r, url.Values{}), r.ID)
		}), web.Post(one+form.path, accounts.ExceptionsWrite, func(c echo.Context) error { return w.changeReservation(c, form) }))
	}
	return rows
}

func (w *pages) changeReservation(c echo.Context, form reservationForm) error {
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	fields := append([]string{"reason"}, form.fields...)
	for _, p := range policies {
		if p.CostFrom != "" {
			fields = append(fields, costField+p.CostFrom)
		}
	}
	f, err := web.Form(c, fields...)
	if err != nil {
		return err
	}
	r, err := w.reservation(c)
	if err != nil {
		return err
	}
	change := usage.ReservationChange{ID: r.ID, Reason: strings.TrimSpace(f.Get("reason"))}
	if err = form.apply(&change, &r, f); err == nil {
		_, err = w.cfg.Usage.ChangeReservation(c.Request().Context(), web.TenantOf(c).ID, change)
	}
	v := w.confirmReservation(c, form, &r, f)
	if err == nil {
		return c.Redirect(http.StatusSeeOther, web.AppendQuery(v.Back, url.Values{"done": {form.done}}))
	}
	names := map[string]string{"ttl_ms": "life"}
	for _, name := range r.CostsFrom {
		names["attributes/"+problem.Escape(name)] = costField + name
	}
	return web.Retry(err, &v, &v.Faults, names, func(status int) error { return w.showReservationForm(c, status, v, r.ID) })
}
