package alerts

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

var repeatWords = map[alerts.Repeat]string{alerts.Once: "", alerts.Daily: "every day", alerts.Weekly: "every week"}

func (w *pages) listMaintenance(c echo.Context) error {
	ctx, s := c.Request().Context(), w.scope(c)
	rows, err := w.cfg.Alerts.Maintenances(ctx, s.owner, alerts.Filter{After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	rules, err := w.cfg.Alerts.Rules(ctx, s.owner, alerts.Filter{Limit: alerts.MaxRules})
	if err != nil {
		return err
	}
	names := make(map[string]string, len(rules))
	for i := range rules {
		names[rules[i].ID] = rules[i].Name
	}
	newURL := ""
	if s.write {
		newURL = s.base + "/maintenance/new"
	}
	v := views.AlertMaintenance{AlertHead: w.head(c, "/maintenance")}
	v.List = web.NewList(c, rows, func(m alerts.Maintenance) string { return m.ID }, newURL,
		func(m alerts.Maintenance) views.AlertMaintenanceRow {
			r := w.maintenanceRow(c, &m, names)
			if s.write {
				r.DeleteURL = s.base + "/maintenance/" + m.ID + "/delete"
			}
			return r
		})
	v.Empty = views.Empty{
		Title: "No maintenance windows",
		Text:  "Add a window before planned work, so that nobody is woken by what you expect.",
	}
	if s.write {
		v.Empty.Link = views.Link{Text: "Add a window", URL: newURL}
	}
	return w.Render(c, http.StatusOK, views.AlertMaintenancePage(w.page(c, "Maintenance"), v))
}

func (w *pages) maintenanceRow(c echo.Context, m *alerts.Maintenance, names map[string]string) views.AlertMaintenanceRow {
	const form = "2 January 2006, 15:04"
	ctx, now := c.Request().Context(), w.Now()
	r := views.AlertMaintenanceRow{
		Name: m.Name, When: m.StartsAt.In(views.Zone(ctx)).Format(form) + " to " + views.InZone(ctx, m.EndsAt, form),
		Repeat: repeatWords[m.Repeat],
		Rules:  "all rules",
	}
	switch {
	case m.Covers(now):
		r.Status, r.Tone = "now", "warn"
	case m.Over(now):
		r.Status = "over"
	default:
		r.Status, r.Tone = "planned", "good"
	}
	var list []string
	for _, id := range m.Rules {
		if name, exists := names[id]; exists {
			list = append(list, name)
		}
	}
	switch {
	case len(list) > 0:
		r.Rules = strings.Join(list, ", ")
	case len(m.Rules) > 0:
		r.Rules = "deleted rules"
	}
	return r
}

const ruleField = "rule-"

// maintenanceForm returns the form for a new maintenance window. Its times are in the time zone
// of the page.
func (w *pages) maintenanceForm(c echo.Context) (views.AlertMaintenanceForm, error) {
	ctx, s := c.Request().Context(), w.scope(c)
	zone := views.Zone(ctx)
	hour := w.Now().In(zone).Truncate(time.Hour).Add(time.Hour)
	v := views.AlertMaintenanceForm{
		AlertHead: w.head(c, "/maintenance"), Action: s.base + "/maintenance", Back: s.base + "/maintenance",
		Name:   views.TextInput("name", "Name", "", "For people: “upgrade of the database”."),
		Starts: views.TextInput("starts_at", "Begins ("+zone.String()+")", hour.Format(web.RangeForm), ""),
		Ends:   views.TextInput("ends_at", "Ends ("+zone.String()+")", hour.Add(time.Hour).Format(web.RangeForm), ""),
		Repeat: views.Select{Name: "repeat", Label: "Repeated", Optional: true, Options: []views.Option{{Label: "no"}}},
		Rules:  views.Checks{Name: "rules", Label: "Only these rules (none checked: all)"},
	}
	v.Starts.Type, v.Ends.Type, v.Starts.Autocomplete, v.Ends.Autocomplete = "datetime-local", "datetime-local", "", ""
	for _, r := range alerts.Repeats[1:] {
		v.Repeat.Options = append(v.Repeat.Options, views.Option{Value: string(r), Label: repeatWords[r] + ", counted in UTC"})
	}
	rules, err := w.cfg.Alerts.Rules(ctx, s.owner, alerts.Filter{Limit: alerts.MaxRules})
	for i := range rules {
		v.Rules.Options = append(v.Rules.Options, views.CheckBox{Name: ruleField + rules[i].ID, Label: rules[i].Name, Hint: rules[i].Figure()})
	}
	return v, err
}

func (w *pages) showMaintenanceForm(c echo.Context, status int, v views.AlertMaintenanceForm) error {
	return w.Render(c, status, views.AlertMaintenanceFormPage(w.page(c, "New window", views.Link{Text: "Maintenance", URL: v.Back}), v))
}

func (w *pages) newMaintenance(c echo.Context) error {
	v, err := w.maintenanceForm(c)
	if err != nil {
		return err
	}
	return w.showMaintenanceForm(c, http.StatusOK, v)
}

func (w *pages) createMaintenance(c echo.Context) error {
	f, err := web.WideForm(c, func(name string) bool {
		return name == "name" || name == "starts_at" || name == "ends_at" || name == "repeat" || strings.HasPrefix(name, ruleField)
	})
	if err != nil {
		return err
	}
	s := w.scope(c)
	v, err := w.maintenanceForm(c)
	if err != nil {
		return err
	}
	v.Name.Value, v.Starts.Value, v.Ends.Value, v.Repeat.Value = f.Get("name"), f.Get("starts_at"), f.Get("ends_at"), f.Get("repeat")
	for i := range v.Rules.Options {
		v.Rules.Options[i].Checked = f.Has(v.Rules.Options[i].Name)
	}
	d := alerts.MaintenanceDocument{Name: strings.TrimSpace(v.Name.Value), Repeat: alerts.Repeat(v.Repeat.Value), Rules: checkedIDs(f,
		ruleField)}
	var faults problem.Fields
	for _, t := range []struct {
		field *views.Input
		into  *time.Time
	}{{&v.Starts, &d.StartsAt}, {&v.Ends, &d.EndsAt}} {
		if *t.into, err = time.ParseInLocation(web.RangeForm, t.field.Value, views.Zone(c.Request().Context())); err != nil {
			faults.Add("/"+t.field.Name, "must be a time like 2026-11-21T09:30")
		}
	}
	if err = faults.Err(); err == nil {
		_, err = w.cfg.Alerts.CreateMaintenance(c.Request().Context(), s.owner, d)
	}
	if err == nil {
		return w.done(c, v.Back, "maintenance-created")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showMaintenanceForm(c, status, v) })
}

func (w *pages) maintenanceOf(c echo.Context, s scope) (alerts.Maintenance, error) {
	id, err := web.PathID(c, "maintenance")
	if err != nil {
		return alerts.Maintenance{}, err
	}
	return w.cfg.Alerts.Maintenance(c.Request().Context(), s.owner, id)
}

func (w *pages) confirmMaintenance(c echo.Context) error {
	s := w.scope(c)
	m, err := w.maintenanceOf(c, s)
	if err != nil {
		return err
	}
	back := s.base + "/maintenance"
	v := views.Confirm{
		Head: w.head(c, "").Tenant, Title: "Delete the window " + m.Name + "?", Button: "Delete the window", Bad: true,
		Action: back + "/" + m.ID + "/delete", Back: back, Text: []string{"Alerts that it keeps back are announced at once, if they still last."},
	}
	return w.Render(c, http.StatusOK, views.ConfirmPage(w.page(c, "Delete", views.Link{Text: "Maintenance", URL: back}), v))
}

func (w *pages) deleteMaintenance(c echo.Context, _ url.Values) error {
	s := w.scope(c)
	m, err := w.maintenanceOf(c, s)
	if err != nil {
		return err
	}
	if err := w.cfg.Alerts.DeleteMaintenance(c.Request().Context(), s.owner, m.ID); err != nil {
		return err
	}
	return w.done(c, s.base+"/maintenance", "maintenance-deleted")
}
