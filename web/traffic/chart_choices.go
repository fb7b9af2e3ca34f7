package traffic

import (
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// compareParam is the parameter of an address that draws the time before into the charts.
const compareParam = "compare"

// chosen adds the choices of the charts in an address to the other parameters of the page.
func chosen(c echo.Context, also url.Values) {
	if c.QueryParam(compareParam) == "1" {
		also.Set(compareParam, "1")
	}
}

// hiddenChoices returns the choices of the charts as hidden fields of a form.
func hiddenChoices(also url.Values) (list []views.Hidden) {
	if also.Get(compareParam) != "" {
		list = append(list, views.Hidden{Name: compareParam, Value: also.Get(compareParam)})
	}
	return list
}

// choices returns the links that change what the charts show.
func (d *drawing) choices() *views.ChartChoices {
	link := func(text, label, name, value string) views.RangeLink {
		return views.RangeLink{
			Text: text, Label: label, Current: d.also.Get(name) == value,
			URL: d.s.Address(d.path, paused(d.s, web.With(d.also, name, value))) + "#traffic",
		}
	}
	return &views.ChartChoices{Compare: []views.RangeLink{
		link("nothing", "Only the time of the page", compareParam, ""),
		link("the time before", "Lines show the time of the same length before", compareParam, "1"),
	}}
}
