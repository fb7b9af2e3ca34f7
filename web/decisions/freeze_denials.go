package decisions

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/share"
	"github.com/headgate/headgate/web/views"
)

// freezeDenials returns the present content of the list of denials, to store it in a
// snapshot that is shared by a link.
func (w *pages) freezeDenials(c echo.Context) (views.Shared, error) {
	v, err := w.denialsOf(c)
	if err != nil {
		return views.Shared{}, err
	}
	rows, err := w.denialsFor(c.Request().Context(), &v)
	if err != nil {
		return views.Shared{}, err
	}
	if len(v.faults) > 0 {
		return views.Shared{}, problem.At("/query", "has a filter that is not valid: correct the page and share it again")
	}
	if v.group == "" {
		rows = rows[:min(denialsOnPage, len(rows))]
	}
	filters, err := w.denialFilters(c, &v)
	if err != nil {
		return views.Shared{}, err
	}
	zone := v.span.In(v.span.From).Location()
	list := w.denialList(c, &v, rows)
	s := views.Shared{
		Title: outcomes[v.of].title, Period: web.SpanWords(v.span.From, v.span.To, zone), Zone: zone.String(), Filters: filters.Chips,
		Denials: &list,
	}
	if v.tenant.ID != "" {
		s.Title += " · " + v.tenant.Name
	}
	share.WithoutLinks(&s)
	return s, nil
}
