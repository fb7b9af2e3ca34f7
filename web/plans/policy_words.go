package plans

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web/views"
)

// A choiceField has the English words for a field of a policy that has a fixed set of values.
type choiceField struct {
	label string // in the form, in the list of faults and in differences
	hint  string // in the form
	fact  string // the name on the plan page; "" if the page does not show the field
	// byKey says that the field has an effect only if the policy has a count_by.
	byKey  bool
	values map[string]choiceValue
}

// A choiceValue has the words for a value: label for the form, and fact for the plan page. If
// fact is "", the plan page does not show the value.
type choiceValue struct{ label, fact string }

// choiceFields has the words for the fields in Policy.Choices and for their values. A field or
// value without an entry is shown with its name in the API.
var choiceFields = map[string]choiceField{
	"mode": {label: "Mode", fact: "Over the limits", values: map[string]choiceValue{
		string(enforcement.PolicyEnforce): {label: "Enforce: deny requests over the limits"},
		string(enforcement.PolicyDegrade): {label: "Degrade: over the limits, ask for the cheap answer", fact: "cheap answer; nothing is denied"},
		string(enforcement.PolicyDelay):   {label: "Delay: over the limits, let requests wait"},
		string(enforcement.PolicyShadow):  {label: "Shadow: count, and deny nothing"},
		string(enforcement.PolicyOff):     {label: "Off: do nothing"},
	}},
	"missing": {label: "Requests without the attribute", fact: "Without it", byKey: true, values: map[string]choiceValue{
		string(enforcement.MissingShared): {"Share one counter", "these requests share one counter"},
		string(enforcement.MissingSkip):   {"Skip: the policy does not apply", "the policy does not apply"},
		string(enforcement.MissingDeny):   {"Deny with 403", "denied with 403"},
	}},
	"on_failure": {label: "While Redis does not answer", fact: "On failure", values: map[string]choiceValue{
		string(enforcement.OnFailureLocal):  {"Local: each node limits its share of the quota", "each node limits its share of the quota"},
		string(enforcement.OnFailureOpen):   {"Open: allow requests", "allowed while Redis does not answer"},
		string(enforcement.OnFailureClosed): {"Closed: deny requests with 503", "denied with 503 while Redis does not answer"},
	}},
	"consistency": {
		label: "Counting", fact: "Counted",
		hint: "Leased never allows more than the limit. It may deny early, by up to about a tenth of the limit, which other nodes hold. " +
			"Limits below 100 and logs stay exact. Without Redis, both are the same.",
		values: map[string]choiceValue{
			string(enforcement.Exact): {label: "Exact: every request is counted where all nodes read it"},
			string(enforcement.Leased): {
				"Leased: nodes draw quota ahead, and answer without Redis",
				"leased: each node spends quota that it drew ahead; never more than the limit, and at times about a tenth of it less",
			},
		},
	},
}

// fieldNames has the labels of those fields of a policy and a limit that choiceFields does not
// have.
var fieldNames = map[string]string{
	"name": "Name", "description": "Description", "policies": "Policies", "slug": "Slug", "path": "Path", "methods": "Methods",
	"attributes": "Attribute", "count_by": "Counted by", "replaces": "Replaces", "limits": "Limits", "quota": "Requests", "window": "Window",
	"burst": "Burst", "cost": "Cost", "cost_from": "Cost from attribute", "anchor": "Anchor", "warn_at": "Warn at", "durable": "Durable",
	"carry_over": "When numbers change", "max_rollover": "Rolls over at most", "algorithm": "Algorithm",
	"reservation_expiry":   "Expired reservations",
	"reservation_estimate": "Estimates above a limit",
	"delay_ms":             "Delay",
}

// fieldName returns the name of a field for people.
func fieldName(field string) string {
	if c, known := choiceFields[field]; known {
		return c.label
	}
	if name, known := fieldNames[field]; known {
		return name
	}
	return strings.ReplaceAll(field, "_", " ")
}

// choiceOptions returns the options of a field in the form.
func choiceOptions(c enforcement.Choice) []views.Option {
	var list []views.Option
	for _, value := range c.Values {
		o := views.Option{Value: value, Label: choiceFields[c.Field].values[value].label}
		o.Label = cmp.Or(o.Label, value)
		list = append(list, o)
	}
	return list
}

// policyFacts returns the facts about a policy that the plan page shows: its cost, and its
// values of the fields in Policy.Choices.
func policyFacts(p plans.Policy) []views.Fact {
	var list []views.Fact
	if p.Cost != nil {
		list = append(list, views.Fact{Name: "Cost", Value: strconv.FormatInt(*p.Cost, 10) + " units, if a request states none"})
	}
	if p.CostFrom != "" {
		list = append(list, views.Fact{Name: "Cost from", Value: "the attribute " + p.CostFrom})
	}
	if p.Mode == enforcement.PolicyDelay {
		wait := "requests wait " + enforcement.FormatWindow(p.Delay()) + "; nothing is denied"
		list = append(list, views.Fact{Name: "Over the limits", Value: wait})
	}
	if p.ReservationExpiry == enforcement.RefundExpired {
		list = append(list, views.Fact{Name: "Expired reservations", Value: "their cost is given back"})
	}
	if p.ReservationEstimate == enforcement.ClampEstimate {
		list = append(list, views.Fact{Name: "Estimates above a limit", Value: "the whole limit is charged"})
	}
	for _, c := range p.Choices() {
		f, known := choiceFields[c.Field]
		if !known {
			f = choiceField{fact: fieldName(c.Field), values: map[string]choiceValue{*c.Value: {fact: *c.Value}}}
		}
		if fact := f.values[*c.Value].fact; f.fact != "" && fact != "" && (!f.byKey || len(p.CountBy) > 0) {
			list = append(list, views.Fact{Name: f.fact, Value: fact})
		}
	}
	return list
}

// modeBadges has the badge of each policy mode.
var modeBadges = map[enforcement.PolicyMode]views.ModeBadge{
	enforcement.PolicyDegrade: {Text: "degrades", Tone: "warn", Title: "asks for the cheap answer over its limits, and denies nothing"},
	enforcement.PolicyDelay:   {Text: "delays", Tone: "warn", Title: "lets requests over its limits wait, and denies nothing"},
	enforcement.PolicyShadow:  {Text: "shadow", Tone: "violet", Title: "counts, and denies nothing"},
	enforcement.PolicyOff:     {Text: "off", Title: "does nothing"},
	enforcement.PolicyEnforce: {Text: "enforced", Tone: "good", Title: "denies requests over its limits"},
}

func planMode(m enforcement.PolicyMode) views.ModeBadge {
	if b, known := modeBadges[m]; known {
		return b
	}
	return views.ModeBadge{Text: string(m), Tone: "bad"}
}

// algorithmOptions are the algorithms with their properties.
var algorithmOptions = []views.Option{
	{
		Value: enforcement.SlidingWindowCounter.String(), Label: "Sliding window counter",
		Hint: "Two counters, weighted by time. Cheap and smooth, with a small error. A good default.",
	},
	{
		Value: enforcement.FixedWindow.String(), Label: "Fixed window",
		Hint: "One counter for each window. The cheapest. Up to twice the quota may pass around the edge of two windows.",
	},
	{
		Value: enforcement.SlidingWindowLog.String(), Label: "Sliding window log",
		Hint: "Stores every request of the window. Exact. For small quotas, such as sign-ins.",
	},
	{
		Value: enforcement.TokenBucket.String(), Label: "Token bucket",
		Hint: "Fills at a steady rate up to the burst. For APIs where clients may catch up after a pause.",
	},
	{
		Value: enforcement.LeakyBucket.String(), Label: "Leaky bucket",
		Hint: "A queue that is served at a steady rate. A request that passes waits for those before it; above the burst, requests are denied.",
	},
	{Value: enforcement.GCRA.String(), Label: "GCRA", Hint: "Decides as a token bucket, with one number of state. Even spacing and a burst."},
	{
		Value: enforcement.Concurrency.String(), Label: "Concurrency",
		Hint: "What is under way at the same time, such as jobs. Requests is the number of places, up to 1,000. A request holds a place until " +
			"it is released; the window is its time to live, after which the place of a crashed holder is free.",
	},
}

// withoutHints returns options without their hints, because a select field does not show hints.
func withoutHints(list []views.Option) []views.Option {
	list = slices.Clone(list)
	for i := range list {
		list[i].Hint = ""
	}
	return list
}

// durableOptions are the options of the field durable.
var durableOptions = []views.Option{
	{Value: "", Label: "If it is a fixed window of an hour or more"},
	{Value: "true", Label: "Yes: used units survive the loss of Redis"},
	{Value: "false", Label: "No"},
}

// A carryOverWord describes a value of the field carry_over: the label of its option, and what
// happens to counters when such a change is published. tone is the color of this text.
type carryOverWord struct{ label, effect, tone string }

var carryOverWords = map[enforcement.CarryOver]carryOverWord{
	enforcement.CarryKeep:         {"Keep what was used, or what a bucket has left", "counters keep their values", "good"},
	enforcement.CarryReset:        {"Reset: start unused", "counters start at zero: their limit has carry_over reset", "warn"},
	enforcement.CarryProportional: {"Keep the used share", "the used share of the limit stays", "good"},
	enforcement.CarryAdditive:     {"Add the difference to what is left", "what is left changes by the difference of the limits", "good"},
}

// carryOverOptions returns the options of the field carry_over.
func carryOverOptions() (list []views.Option) {
	for c := enforcement.CarryKeep; c <= enforcement.CarryAdditive; c++ {
		list = append(list, views.Option{Value: c.String(), Label: carryOverWords[c].label})
	}
	return list
}

var anchorOptions = []views.Option{
	{Value: enforcement.FirstHit.String(), Label: "At the first request"},
	{Value: enforcement.Clock.String(), Label: "By the clock (UTC)"},
	{Value: enforcement.ByCalendar.String(), Label: "By the tenant's calendar"},
	{Value: enforcement.Monday.String(), Label: "On Mondays"},
	{Value: enforcement.Tuesday.String(), Label: "On Tuesdays"},
	{Value: enforcement.Wednesday.String(), Label: "On Wednesdays"},
	{Value: enforcement.Thursday.String(), Label: "On Thursdays"},
	{Value: enforcement.Friday.String(), Label: "On Fridays"},
	{Value: enforcement.Saturday.String(), Label: "On Saturdays"},
	{Value: enforcement.Sunday.String(), Label: "On Sundays"},
}
