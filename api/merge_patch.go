package api

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// mergePatchType is the media type of RFC 7396. PATCH also accepts application/json.
const mergePatchType = "application/merge-patch+json"

// A stored is a function that reads the object that the path of a request names. It returns the stored document of the
// object, and the revision of the object.
type stored func(ctx context.Context, c echo.Context) (document any, revision int64, err error)

// merges returns a copy of the route for PATCH. The route applies the body, a merge patch of RFC
// 7396, to the document that the function document returns. It then calls the handler for PUT with
// the whole new document.
func (r route) merges(document stored) route {
	r.document = document
	return r
}

// patchedBody applies a merge patch to the stored document, and returns the new document. It sets
// the header If-Match to the revision of the stored document. If another write changes the document
// before the handler writes, the handler returns an error because of this header.
func patchedBody(ctx context.Context, r *route, c echo.Context, patch []byte) ([]byte, error) {
	req := c.Request()
	document, revision, err := r.document(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := ifMatch(req.Header.Get("If-Match"), revision); err != nil {
		return nil, err
	}
	req.Header.Set("If-Match", etag(revision))
	whole, err := mergePatch(document, patch, r.body)
	if err != nil {
		return nil, err
	}
	return whole, conform(whole, r.body)
}

// mergePatch applies a merge patch to a document of type t. If a member of the patch is null,
// mergePatch removes this member from the document, so that it gets its default. If the member may
// have the value null, mergePatch sets it to null instead. Any other member of the patch replaces
// the member of the document, because documents have no nested objects.
func mergePatch(document any, patch []byte, t reflect.Type) ([]byte, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	var whole, change map[string]json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		return nil, err
	}
	for name, value := range change {
		i, _, _ := member(t, name)
		if string(value) == "null" && t.Field(i).Type != typeNullableSlug {
			delete(whole, name)
			continue
		}
		whole[name] = value
	}
	return json.Marshal(whole)
}

// conformPatch checks a merge patch against the type of its document, as conform does for a whole
// document. Every member may be missing or null.
func conformPatch(body []byte, t reflect.Type) error {
	var f problem.Fields
	var d strictjson.Decoder
	d.Reset(string(body), strictjson.MaxDepth)
	conformMembers(&d, t, &f, true)
	if err := d.End(); err != nil {
		return err
	}
	return f.Err()
}

// tenantDocumentOf returns the stored document to which PATCH /v1/tenants/{tenant} applies the
// patch.
func (a *API) tenantDocumentOf(ctx context.Context, c echo.Context) (any, int64, error) {
	t, err := shown(showTenant)(a.cfg.Tenants.Tenant(ctx, c.Param("tenant")))
	return t.Tenant, t.Revision, err
}

// accessOf returns the stored document to which PATCH applies the patch, for members and
// people.
func (a *API) accessOf(ctx context.Context, c echo.Context) (any, int64, error) {
	tenantID, id := "", c.Param("person")
	if ref := c.Param("tenant"); ref != "" {
		t, err := a.cfg.Tenants.Tenant(ctx, ref)
		if err != nil {
			return nil, 0, err
		}
		tenantID, id = t.ID, c.Param("member")
	}
	u, err := a.cfg.People.User(ctx, callerOf(ctx).principal(), tenantID, id)
	return Access{Role: Role(u.Role), Disabled: u.Disabled}, u.Revision, err
}

// alertRuleOf returns the stored document to which PATCH /v1/alert-rules/{rule} applies the
// patch.
func (a *API) alertRuleOf(ctx context.Context, c echo.Context) (any, int64, error) {
	owner, err := a.alertOwner(ctx, c.QueryParam("tenant"))
	if err != nil {
		return nil, 0, err
	}
	rule, err := a.cfg.Alerts.Rule(ctx, owner, c.Param("rule"))
	return showAlertDocument(&rule.Document), rule.Version, err
}

// alertChannelOf returns the stored document to which PATCH /v1/alert-channels/{channel}
// applies the patch.
func (a *API) alertChannelOf(ctx context.Context, c echo.Context) (any, int64, error) {
	owner, err := a.alertOwner(ctx, c.QueryParam("tenant"))
	if err != nil {
		return nil, 0, err
	}
	channel, err := shown(showAlertChannel)(a.cfg.Alerts.Channel(ctx, owner, c.Param("channel")))
	return channel.Channel, channel.Version, err
}
