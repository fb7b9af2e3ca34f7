package migrate

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// aws reads the JSON output of the command aws apigateway get-usage-plans or get-usage-plan.
func (r *reader) aws(content []byte) error {
	roots, err := documents(content)
	if err != nil {
		return err
	}
	names := slugs{}
	for _, root := range roots {
		plans := items(root, "items")
		if member(root, "items") == nil {
			plans = []*yaml.Node{root}
		}
		if next := line(root, "NextToken"); text(root, "NextToken") != "" {
			r.note(next, "NextToken: the file is one page of the usage plans, and the others are missing")
		}
		for _, n := range plans {
			if text(n, "name") == "" {
				return fmt.Errorf("line %d: has no name: is it the output of aws apigateway get-usage-plans?", n.Line)
			}
			p, err := r.usagePlan(n)
			if err != nil {
				return err
			}
			r.plans[names.of(p.Name)] = p
		}
	}
	return nil
}

// usagePlan returns the Headgate plan for a usage plan of AWS. Its policies count by API key,
// because AWS counts each API key separately.
func (r *reader) usagePlan(n *yaml.Node) (Plan, error) {
	p := Plan{Name: text(n, "name"), Description: text(n, "description")}
	policy := func(slug string, line int, limit Limit) Policy {
		return Policy{Slug: slug, Description: r.from(line), CountBy: []string{"api_key"}, Limits: []Limit{limit}}
	}
	var replaces []string
	if throttle := member(n, "throttle"); throttle != nil {
		l, err := r.bucket(throttle)
		if err != nil {
			return p, err
		}
		p.Policies = append(p.Policies, policy("throttle", line(n, "throttle"), l))
		replaces = []string{"throttle"}
	}
	if q := member(n, "quota"); q != nil {
		l, err := r.usageQuota(q)
		if err != nil {
			return p, err
		}
		if l != nil {
			p.Policies = append(p.Policies, policy("quota", line(n, "quota"), *l))
		}
	}
	taken := slugs{"throttle": true, "quota": true}
	for _, stage := range items(n, "apiStages") {
		r.note(stage.Line, "access to API %s, stage %s is not carried over: plans have no list of APIs",
			text(stage, "apiId"), text(stage, "stage"))
		for name, throttle := range members(member(stage, "throttle")) {
			at := strings.LastIndexByte(name.Value, '/')
			if at < 0 {
				return p, fmt.Errorf("line %d: %q is not a path and a method", name.Line, name.Value)
			}
			match, ok := r.method(name, name.Value[:at], name.Value[at+1:])
			if !ok {
				continue
			}
			l, err := r.bucket(throttle)
			if err != nil {
				return p, err
			}
			one := policy(taken.of(text(stage, "stage"), name.Value), name.Line, l)
			one.Match, one.Replaces = match.orNil(), replaces
			p.Policies = append(p.Policies, one)
		}
	}
	for k, v := range members(n) {
		switch k.Value {
		case "id", "name", "description", "throttle", "quota", "apiStages":
		default:
			if v.Kind != yaml.MappingNode || len(v.Content) > 0 {
				r.note(k.Line, "%s is not carried over", k.Value)
			}
		}
	}
	if len(p.Policies) == 0 {
		r.note(n.Line, "usage plan %s has no throttle and no quota, so it is left out", p.Name)
	}
	return p, nil
}

// method returns the Match for one method and path of an API. If no path pattern can express the
// path, it adds a note and returns false.
func (r *reader) method(name *yaml.Node, path, method string) (Match, bool) {
	path = strings.ReplaceAll(path, "{proxy+}", "*")
	if i := strings.IndexByte(path, '*'); i >= 0 && i != len(path)-1 || strings.Contains(path, "+}") {
		r.note(name.Line, "%s: a pattern can have a rest of the path at its end only, so this throttle is left out", name.Value)
		return Match{}, false
	}
	if path == "" {
		path = "/"
	}
	m := Match{Path: path}
	if method != "ANY" && method != "*" {
		m.Methods = []string{method}
	}
	return m, true
}

// bucket returns the token bucket that corresponds to a throttle of AWS.
func (r *reader) bucket(n *yaml.Node) (Limit, error) {
	rate, err := strconv.ParseFloat(text(n, "rateLimit"), 64)
	if err != nil || !(rate >= 0 && rate <= 1e9) { // the negation also rejects NaN
		return Limit{}, fmt.Errorf("line %d: rateLimit must be a number of requests per second", n.Line)
	}
	burst := int64(0)
	if b := member(n, "burstLimit"); b != nil {
		if burst, err = quota(b); err != nil {
			return Limit{}, err
		}
	}
	l := Limit{Name: "rate", Algorithm: "token_bucket", Burst: burst}
	for seconds := 1.0; ; seconds *= 10 {
		q := math.Round(rate * seconds)
		if math.Abs(q-rate*seconds) < 1e-9*seconds || seconds == 10_000 {
			if q != rate*seconds && math.Abs(q-rate*seconds) >= 1e-9*seconds {
				r.note(line(n, "rateLimit"), "rateLimit %g is rounded to %g requests in %gs", rate, q, seconds)
			}
			l.Quota, l.Window = int64(q), fmt.Sprintf("%gs", seconds)
			break
		}
	}
	if burst == 0 {
		r.note(n.Line, "burstLimit is 0 or missing, so the policy denies all requests, as API Gateway does")
		l.Quota = 0
	}
	return l, nil
}

// awsAnchors maps the period of a quota to the anchor of a limit. AWS begins periods at days of
// the UTC calendar.
var awsAnchors = map[string]string{"DAY": "calendar", "WEEK": "sunday", "MONTH": "calendar"}

// usageQuota returns the limit that corresponds to a quota of AWS. If no limit can express the
// quota, usageQuota adds a note and returns nil.
func (r *reader) usageQuota(n *yaml.Node) (*Limit, error) {
	count := member(n, "limit")
	if count == nil {
		return nil, fmt.Errorf("line %d: quota has no limit", n.Line)
	}
	q, err := quota(count)
	if err != nil {
		return nil, err
	}
	anchor, ok := awsAnchors[text(n, "period")]
	if !ok {
		r.note(line(n, "period"), "period %q is unknown, so this quota is left out", text(n, "period"))
		return nil, nil //nolint:nilnil // documented
	}
	period := strings.ToLower(text(n, "period"))
	if period == "week" {
		r.note(line(n, "period"), "period WEEK: weeks begin on Sunday; AWS does not document the day")
	}
	if offset := text(n, "offset"); offset != "" && offset != "0" {
		r.note(line(n, "offset"), "offset %s: the first period has the whole quota", offset)
	}
	return &Limit{Name: period, Algorithm: "fixed_window", Quota: q, Window: period, Anchor: anchor}, nil
}
