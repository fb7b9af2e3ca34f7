package traffic

import (
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

// compareParam is the query parameter with which the charts are compared. With compare=1, they
// also show the counts of the previous period as lines.
const compareParam = "compare"

// groupParam is the query parameter that selects how the charts of requests and denials are
// grouped, such as by=policy.
const groupParam = "by"

// groupsShown is the maximum number of groups that a chart shows. The chart adds up the
// requests of all other groups under the name Others.
const groupsShown = 5

// chartGroupings lists the allowed values of groupParam. Each has the word that the page shows
// for it.
var chartGroupings = []struct {
	by    metrics.Grouping
	words string
}{{metrics.ByTenant, "tenant"}, {metrics.ByPolicy, "policy"}, {metrics.ByRouteName, "route"}}

// chosen copies the query parameters compare and by from the URL to also. If the value of by is
// not allowed, it returns an error message for the page; otherwise it returns "".
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

// groupingOf returns how the charts of a page are grouped, or "" if they are not. Headgate
// stores counts by group only for all requests together. Therefore charts with a filter by
// policy or route are not grouped. The charts of one tenant are not grouped by tenant.
func groupingOf(tenant uint32, also url.Values) metrics.Grouping {
	by := metrics.Grouping(also.Get(groupParam))
	if also.Get("policy") != "" || also.Get("route") != "" || tenant != 0 && by == metrics.ByTenant {
		return ""
	}
	return by
}

// hiddenChoices returns the query parameters compare and by as hidden fields. A form with these
// fields keeps the choices.
func hiddenChoices(also url.Values) (list []views.Hidden) {
	if also.Get(compareParam) != "" {
		list = append(list, views.Hidden{Name: compareParam, Value: also.Get(compareParam)})
	}
	if also.Get(groupParam) != "" {
		list = append(list, views.Hidden{Name: groupParam, Value: also.Get(groupParam)})
	}
	return list
}

// setChoiceFault shows an error message beside the links that change the charts.
func setChoiceFault(t *views.Traffic, fault string) {
	if t.Requests.Choices != nil {
		t.Requests.Choices.Error = fault
	}
}

// choices returns the links above the charts. One compares with the previous period; the others
// group the charts.
func (d *drawing) choices() *views.ChartChoices {
	link := func(text, label, name, value string) views.RangeLink {
		return views.RangeLink{
			Text: text, Label: label, Current: d.also.Get(name) == value,
			URL: d.s.Address(d.path, requests.Paused(d.s, web.With(d.also, name, value))) + "#traffic",
		}
	}
	choices := &views.ChartChoices{Compare: []views.RangeLink{
		link("nothing", "Only the time of the page", compareParam, ""),
		link("the previous period", "Lines show the period of the same length before this one", compareParam, "1"),
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
