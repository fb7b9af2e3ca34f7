package traffic

import (
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

// compareParam is the parameter of an address that draws the time before into the charts.
const compareParam = "compare"

// groupParam is the parameter of an address that divides the charts of requests and denials.
const groupParam = "by"

// groupsShown is how many groups a chart shows. The others are together.
const groupsShown = 5

// chartGroupings are the values of groupParam, with their names on the page.
var chartGroupings = []struct {
	by    metrics.Grouping
	words string
}{{metrics.ByTenant, "tenant"}, {metrics.ByPolicy, "policy"}, {metrics.ByRouteName, "route"}}

// chosen adds the choices of the charts in an address to the other parameters of the page. It
// returns what is wrong with them, or "".
func chosen(c echo.Context, also url.Values) (fault string) {
	if c.QueryParam(compareParam) == "1" {
		also.Set(compareParam, "1")
	}
	by := c.QueryParam(groupParam)
	for _, g := range chartGroupings {
		if string(g.by) == by {
			also.Set(groupParam, by)
			return ""
		}
	}
	if by != "" {
		return "Requests cannot be grouped by " + by + ". Choose tenant, policy, or route."
	}
	return ""
}

// groupingOf returns by what the charts of a page are grouped; "" if they are not. Only requests of
// all policies and routes are counted in groups, and a page of one tenant has no others.
func groupingOf(tenant uint32, also url.Values) metrics.Grouping {
	by := metrics.Grouping(also.Get(groupParam))
	if also.Get("policy") != "" || also.Get("route") != "" || tenant != 0 && by == metrics.ByTenant {
		return ""
	}
	return by
}

// hiddenChoices returns the choices of the charts as hidden fields of a form.
func hiddenChoices(also url.Values) (list []views.Hidden) {
	if also.Get(compareParam) != "" {
		list = append(list, views.Hidden{Name: compareParam, Value: also.Get(compareParam)})
	}
	if also.Get(groupParam) != "" {
		list = append(list, views.Hidden{Name: groupParam, Value: also.Get(groupParam)})
	}
	return list
}

// setChoiceFault shows what is wrong with the choices of the charts in the address.
func setChoiceFault(t *views.Traffic, fault string) {
	if t.Requests.Choices != nil {
		t.Requests.Choices.Error = fault
	}
}

// choices returns the links that change what the charts show.
func (d *drawing) choices() *views.ChartChoices {
	link := func(text, label, name, value string) views.RangeLink {
		return views.RangeLink{
			Text: text, Label: label, Current: d.also.Get(name) == value,
			URL: d.s.Address(d.path, requests.Paused(d.s, web.With(d.also, name, value))) + "#traffic",
		}
	}
	choices := &views.ChartChoices{Compare: []views.RangeLink{
		link("nothing", "Only the time of the page", compareParam, ""),
		link("the time before", "Lines show the time of the same length before", compareParam, "1"),
	}}
	if d.also.Get("policy") != "" || d.also.Get("route") != "" {
		return choices
	}
	choices.Groups = append(choices.Groups, link("nothing", "All requests together", groupParam, ""))
	choices.Groups[0].Current = d.by == ""
	for _, g := range chartGroupings {
		if g.by != metrics.ByTenant || d.tenant == 0 {
			choices.Groups = append(choices.Groups, link(g.words, "The largest five, and the others", groupParam, string(g.by)))
		}
	}
	return choices
}
