package api

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/problem"
)

// alertOwner returns the ID of the tenant that owns the alerts of a request, or "" for the
// operator. A tenant key reaches only the alerts of its own tenant.
func (a *API) alertOwner(ctx context.Context, tenant string) (string, error) {
	return a.auditedTenant(ctx, tenant)
}

// alertDocument converts the JSON form of a rule in the API to an alerts.Document.
func alertDocument(b *AlertRuleDocument) (alerts.Document, error) {
	d := alerts.Document{
		Name: b.Name, Metric: alerts.Metric(b.Metric), Tenant: b.Tenant, EachTenant: b.EachTenant, Policy: b.Policy, MinRequests: b.MinRequests,
		Disabled: b.Disabled, MutedUntil: b.MutedUntil.UTC(), Channels: b.Channels,
	}
	var f problem.Fields
	for _, field := range []struct {
		pointer string
		number  json.Number
		into    *float64
	}{{"/threshold", b.Threshold, &d.Threshold}, {"/recovery", cmp.Or(b.Recovery, b.Threshold), &d.Recovery}} {
		var err error
		if *field.into, err = field.number.Float64(); err != nil {
			f.Add(field.pointer, "is too large")
		}
	}
	for _, field := range []struct {
		pointer, text string
		into          *time.Duration
	}{{"/window", b.Window, &d.Window}, {"/for", b.For, &d.For}} {
		if field.text == "" {
			continue
		}
		var err error
		if *field.into, err = enforcement.ParseWindow(field.text); err != nil {
			f.Add(field.pointer, "%v", err)
		}
	}
	return d, f.Err()
}

// showAlertDocument converts an alerts.Document to the JSON form of a rule in the API.
func showAlertDocument(d *alerts.Document) AlertRuleDocument {
	out := AlertRuleDocument{
		Name: d.Name, Metric: AlertMetric(d.Metric), Tenant: d.Tenant, EachTenant: d.EachTenant, Policy: d.Policy,
		Threshold: alertNumber(d.Threshold), Recovery: alertNumber(d.Recovery), MinRequests: d.MinRequests,
		Disabled: d.Disabled, MutedUntil: Instant{d.MutedUntil},
		Channels: d.Channels,
	}
	if d.Window > 0 {
		out.Window = enforcement.FormatWindow(d.Window)
	}
	if d.For > 0 {
		out.For = enforcement.FormatWindow(d.For)
	}
	return out
}

func alertNumber(n float64) json.Number { return json.Number(strconv.FormatFloat(n, 'f', -1, 64)) }

// ids parses the IDs of a stored object. An empty ID becomes the zero UUID.
func ids(texts ...string) ([]uuid.UUID, error) {
	list := make([]uuid.UUID, len(texts))
	for i, text := range texts {
		if text == "" {
			continue
		}
		var err error
		if list[i], err = parseUUID(text); err != nil {
			return list, err
		}
	}
	return list, nil
}

func showAlertRule(w alerts.Watched) (AlertRule, error) {
	id, err := ids(w.ID, w.TenantID)
	if err != nil {
		return AlertRule{}, err
	}
	s := &w.State
	state := AlertState{
		Phase: AlertPhase(s.Phase), Since: Instant{s.Since}, Value: s.Value, At: Instant{s.At}, Detail: s.Detail, Error: s.Err,
	}
	if s.Phase == "" {
		state.Phase = AlertPhase(alerts.OK)
	}
	for _, slug := range slices.Sorted(maps.Keys(s.Tenants)) {
		t := s.Tenants[slug]
		state.Tenants = append(state.Tenants, AlertTenantState{
			Tenant: slug, Phase: AlertPhase(t.Phase), Since: Instant{t.Since}, Value: t.Value, At: Instant{t.At}, Detail: t.Detail, Error: t.Err,
		})
	}
	return AlertRule{
		Id: id[0], TenantId: id[1], Version: w.Version, Rule: showAlertDocument(&w.Document), State: state, CreatedAt: Instant{w.CreatedAt},
		UpdatedAt: Instant{w.UpdatedAt},
	}, nil
}

// alertRuleAt returns the alert rule with the given ID. match is the value of the header If-Match.
// If it is not the version of the rule, alertRuleAt returns an error.
func (a *API) alertRuleAt(ctx context.Context, owner, id, match string) (alerts.Watched, error) {
	w, err := a.cfg.Alerts.Rule(ctx, owner, id)
	if err != nil {
		return w, err
	}
	return w, ifMatch(match, w.Version)
}

// ListAlertRules is GET /v1/alert-rules.
func (a *API) ListAlertRules(ctx context.Context, r ListAlertRulesRequestObject) (ListAlertRulesResponseObject, error) {
	p := r.Params
	owner, err := a.alertOwner(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	out, link, err := list(
		"/v1/alert-rules", filters("tenant", owner), p.Limit, p.Cursor,
		func(after string, limit int) ([]alerts.Watched, error) {
			return a.cfg.Alerts.Rules(ctx, owner, alerts.Filter{After: after, Limit: limit})
		}, func(w alerts.Watched) string { return w.ID }, showAlertRule)
	return ListAlertRules200JSONResponse{AlertRulePage(out), ListAlertRules200ResponseHeaders{link}}, err
}

// CreateAlertRule is POST /v1/alert-rules.
func (a *API) CreateAlertRule(ctx context.Context, r CreateAlertRuleRequestObject) (CreateAlertRuleResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	d, err := alertDocument(r.Body)
	if err != nil {
		return nil, err
	}
	rule, err := a.cfg.Alerts.CreateRule(ctx, owner, d)
	out, err := shown(showAlertRule)(alerts.Watched{Rule: rule}, err)
	return CreateAlertRule201JSONResponse{
		out, CreateAlertRule201ResponseHeaders{etag(out.Version), alertLocation("rules", rule.ID, owner)},
	}, err
}

// alertLocation returns the Location header of a new alert object, such as a rule or a channel.
func alertLocation(kind, id, owner string) string {
	return "/v1/alert-" + kind + "/" + id + ownerQuery(owner)
}

// ownerQuery returns the query string that names the tenant that owns an object. It is "" for
// the operator.
func ownerQuery(owner string) string {
	if owner == "" {
		return ""
	}
	return "?tenant=" + owner
}

// GetAlertRule is GET /v1/alert-rules/{rule}.
func (a *API) GetAlertRule(ctx context.Context, r GetAlertRuleRequestObject) (GetAlertRuleResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := shown(showAlertRule)(a.cfg.Alerts.Rule(ctx, owner, r.Rule.String()))
	return GetAlertRule200JSONResponse{out, GetAlertRule200ResponseHeaders{etag(out.Version)}}, err
}

// UpdateAlertRule is PUT /v1/alert-rules/{rule}.
func (a *API) UpdateAlertRule(ctx context.Context, r UpdateAlertRuleRequestObject) (UpdateAlertRuleResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	before, err := a.alertRuleAt(ctx, owner, r.Rule.String(), r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	d, err := alertDocument(r.Body)
	if err != nil {
		return nil, err
	}
	before.Rule, err = a.cfg.Alerts.ChangeRule(ctx, owner, before.ID, before.Version, d)
	out, err := shown(showAlertRule)(before, err)
	return UpdateAlertRule200JSONResponse{out, UpdateAlertRule200ResponseHeaders{etag(out.Version)}}, err
}

// DeleteAlertRule is DELETE /v1/alert-rules/{rule}.
func (a *API) DeleteAlertRule(ctx context.Context, r DeleteAlertRuleRequestObject) (DeleteAlertRuleResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err == nil {
		err = a.cfg.Alerts.DeleteRule(ctx, owner, r.Rule.String())
	}
	return DeleteAlertRule204Response{}, err
}

func channelDocument(b *AlertChannelDocument) alerts.ChannelDocument {
	return alerts.ChannelDocument{Name: b.Name, Kind: alerts.Kind(b.Kind), URL: b.Url}
}

func showAlertChannel(c alerts.Channel) (AlertChannel, error) {
	id, err := ids(c.ID, c.TenantID)
	if err != nil {
		return AlertChannel{}, err
	}
	d := AlertChannelDocument{Name: c.Name, Kind: AlertChannelKind(c.Kind), Url: c.URL}
	if c.Kind == alerts.Slack {
		d.Url = alerts.HideAddress(c.URL)
	}
	return AlertChannel{
		Id: id[0], TenantId: id[1], Version: c.Version, Channel: d,
		CreatedAt: Instant{c.CreatedAt}, UpdatedAt: Instant{c.UpdatedAt},
	}, nil
}

func showIssuedChannel(c alerts.Channel) (IssuedAlertChannel, error) {
	out, err := showAlertChannel(c)
	return IssuedAlertChannel{Channel: out, Secret: c.Secret}, err
}

// ListAlertChannels is GET /v1/alert-channels.
func (a *API) ListAlertChannels(ctx context.Context, r ListAlertChannelsRequestObject) (ListAlertChannelsResponseObject, error) {
	p := r.Params
	owner, err := a.alertOwner(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	out, link, err := list(
		"/v1/alert-channels", filters("tenant", owner), p.Limit, p.Cursor,
		func(after string, limit int) ([]alerts.Channel, error) {
			return a.cfg.Alerts.Channels(ctx, owner, alerts.Filter{After: after, Limit: limit})
		}, func(c alerts.Channel) string { return c.ID }, showAlertChannel)
	return ListAlertChannels200JSONResponse{AlertChannelPage(out), ListAlertChannels200ResponseHeaders{link}}, err
}

// CreateAlertChannel is POST /v1/alert-channels.
func (a *API) CreateAlertChannel(
	ctx context.Context, r CreateAlertChannelRequestObject,
) (CreateAlertChannelResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	c, err := a.cfg.Alerts.CreateChannel(ctx, owner, channelDocument(r.Body))
	out, err := shown(showIssuedChannel)(c, err)
	return CreateAlertChannel201JSONResponse{
		out, CreateAlertChannel201ResponseHeaders{etag(c.Version), alertLocation("channels", c.ID, owner)},
	}, err
}

// GetAlertChannel is GET /v1/alert-channels/{channel}.
func (a *API) GetAlertChannel(ctx context.Context, r GetAlertChannelRequestObject) (GetAlertChannelResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := shown(showAlertChannel)(a.cfg.Alerts.Channel(ctx, owner, r.Channel.String()))
	return GetAlertChannel200JSONResponse{out, GetAlertChannel200ResponseHeaders{etag(out.Version)}}, err
}

// UpdateAlertChannel is PUT /v1/alert-channels/{channel}.
func (a *API) UpdateAlertChannel(
	ctx context.Context, r UpdateAlertChannelRequestObject,
) (UpdateAlertChannelResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	before, err := a.cfg.Alerts.Channel(ctx, owner, r.Channel.String())
	if err != nil {
		return nil, err
	}
	if err := ifMatch(r.Params.IfMatch, before.Version); err != nil {
		return nil, err
	}
	out, err := shown(showAlertChannel)(a.cfg.Alerts.ChangeChannel(ctx, owner, before.ID, before.Version, channelDocument(r.Body)))
	return UpdateAlertChannel200JSONResponse{out, UpdateAlertChannel200ResponseHeaders{etag(out.Version)}}, err
}

// DeleteAlertChannel is DELETE /v1/alert-channels/{channel}.
func (a *API) DeleteAlertChannel(
	ctx context.Context, r DeleteAlertChannelRequestObject,
) (DeleteAlertChannelResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err == nil {
		err = a.cfg.Alerts.DeleteChannel(ctx, owner, r.Channel.String())
	}
	return DeleteAlertChannel204Response{}, err
}

// RotateAlertSecret is POST /v1/alert-channels/{channel}/rotate-secret.
func (a *API) RotateAlertSecret(ctx context.Context, r RotateAlertSecretRequestObject) (RotateAlertSecretResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	c, err := a.cfg.Alerts.RotateSecret(ctx, owner, r.Channel.String())
	out, err := shown(showIssuedChannel)(c, err)
	return RotateAlertSecret200JSONResponse{out, RotateAlertSecret200ResponseHeaders{etag(c.Version)}}, err
}

func showDelivery(d alerts.Delivery) (AlertDelivery, error) {
	id, err := ids(d.ID, d.TenantID, d.ChannelID, d.IncidentID)
	if err != nil {
		return AlertDelivery{}, err
	}
	return AlertDelivery{
		Id: id[0], TenantId: id[1], ChannelId: id[2], AlertId: id[3],
		Event: AlertEvent(strings.TrimPrefix(string(d.Event), "alert.")), Status: AlertDeliveryStatus(d.Status),
		Attempts: int64(d.Attempts), Answer: d.Answer, CreatedAt: Instant{d.CreatedAt}, DueAt: Instant{d.DueAt}, EndedAt: Instant{d.EndAt},
	}, nil
}

// CreateAlertTest is POST /v1/alert-channels/{channel}/test.
func (a *API) CreateAlertTest(ctx context.Context, r CreateAlertTestRequestObject) (CreateAlertTestResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := shown(showDelivery)(a.cfg.Alerts.Test(ctx, owner, r.Channel.String()))
	return CreateAlertTest202JSONResponse(out), err
}

func showAlert(i alerts.Incident) (Alert, error) {
	id, err := ids(i.ID, i.TenantID, i.RuleID)
	if err != nil {
		return Alert{}, err
	}
	return Alert{
		Id: id[0], TenantId: id[1], RuleId: id[2], Rule: showAlertDocument(&i.Rule), BeganAt: Instant{i.BeganAt}, EndedAt: Instant{i.EndedAt},
		Value: i.Value, Peak: i.Peak, Detail: i.Detail,
	}, nil
}

// ListAlerts is GET /v1/alerts.
func (a *API) ListAlerts(ctx context.Context, r ListAlertsRequestObject) (ListAlertsResponseObject, error) {
	p := r.Params
	owner, err := a.alertOwner(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	filter := filters("tenant", owner)
	if p.Open {
		filter.Set("open", strconv.FormatBool(p.Open))
	}
	out, link, err := list("/v1/alerts", filter, p.Limit, p.Cursor, func(after string, limit int) ([]alerts.Incident, error) {
		return a.cfg.Alerts.Incidents(ctx, owner, alerts.Filter{After: after, Limit: limit, Open: p.Open})
	}, func(i alerts.Incident) string { return i.ID }, showAlert)
	return ListAlerts200JSONResponse{AlertPage(out), ListAlerts200ResponseHeaders{link}}, err
}

// GetAlert is GET /v1/alerts/{alert}.
func (a *API) GetAlert(ctx context.Context, r GetAlertRequestObject) (GetAlertResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := shown(showAlert)(a.cfg.Alerts.Incident(ctx, owner, r.Alert.String()))
	return GetAlert200JSONResponse(out), err
}

// ListAlertTemplates is GET /v1/alert-templates.
func (a *API) ListAlertTemplates(ctx context.Context, r ListAlertTemplatesRequestObject) (ListAlertTemplatesResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	var out AlertTemplateList
	for _, t := range alerts.Templates(owner == "") {
		template := AlertTemplate{Slug: t.Slug, Summary: t.Summary, Rule: showAlertDocument(&t.Document)}
		if t.NeedsPolicy {
			template.Needs = []string{"policy"}
		}
		out.Data = append(out.Data, template)
	}
	return ListAlertTemplates200JSONResponse(out), nil
}

// GetAlertDelivery is GET /v1/alert-deliveries/{delivery}.
func (a *API) GetAlertDelivery(ctx context.Context, r GetAlertDeliveryRequestObject) (GetAlertDeliveryResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	d, attempts, err := a.cfg.Alerts.Delivery(ctx, owner, r.Delivery.String())
	out, err := shown(showDelivery)(d, err)
	for _, attempt := range attempts {
		out.Log = append(out.Log, AlertAttempt{At: Instant{attempt.At}, Answer: attempt.Answer})
	}
	return GetAlertDelivery200JSONResponse(out), err
}

// ListAlertDeliveries is GET /v1/alert-deliveries.
func (a *API) ListAlertDeliveries(
	ctx context.Context, r ListAlertDeliveriesRequestObject,
) (ListAlertDeliveriesResponseObject, error) {
	p := r.Params
	owner, err := a.alertOwner(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	if p.Status != "" && !slices.Contains(alerts.DeliveryStatuses, alerts.DeliveryStatus(p.Status)) {
		return nil, malformedAt("status", "must be waiting, delivered or dead")
	}
	filter := filters("tenant", owner, "status", string(p.Status))
	out, link, err := list(
		"/v1/alert-deliveries", filter, p.Limit, p.Cursor,
		func(after string, limit int) ([]alerts.Delivery, error) {
			return a.cfg.Alerts.Deliveries(ctx, owner, alerts.Filter{After: after, Limit: limit, Status: alerts.DeliveryStatus(p.Status)})
		}, func(d alerts.Delivery) string { return d.ID }, showDelivery)
	return ListAlertDeliveries200JSONResponse{AlertDeliveryPage(out), ListAlertDeliveries200ResponseHeaders{link}}, err
}

// CreateAlertRepetition is POST /v1/alert-deliveries/{delivery}/repeat.
func (a *API) CreateAlertRepetition(
	ctx context.Context, r CreateAlertRepetitionRequestObject,
) (CreateAlertRepetitionResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := shown(showDelivery)(a.cfg.Alerts.Repeat(ctx, owner, r.Delivery.String()))
	return CreateAlertRepetition202JSONResponse(out), err
}
