package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// A page shows all times in one time zone. The parameter tz of the address selects the zone. If
// the address has no tz, the zone is the last choice of the visitor, which a cookie stores. The
// default is UTC.

const (
	zoneCookie = "headgate-zone"
	// ZoneParam is the parameter of an address that names the zone.
	ZoneParam = "tz"
	// tenantZone is the value of the cookie that selects the time zone of the page's tenant.
	tenantZone = "tenant"
)

// LoadZone returns a zone of the time zone database. It rejects names that only some hosts know, see
// problem.ValidTimeZone.
func LoadZone(name string) (*time.Location, bool) {
	if !problem.ValidTimeZone(name) {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}

// chosenZone returns the value of the visitor's time zone cookie, or "" for UTC.
func chosenZone(r *http.Request) string {
	cookie, err := r.Cookie(zoneCookie)
	if err != nil {
		return ""
	}
	value, err := url.QueryUnescape(cookie.Value)
	if err != nil {
		return ""
	}
	return value
}

// pageTenant returns the tenant in the path. If the path has none, it returns the visitor's
// tenant. If the visitor has none either, it returns the zero value.
func pageTenant(c echo.Context, v Visitor) tenants.Tenant {
	if t, ok := c.Get(TenantKey).(tenants.Tenant); ok {
		return t
	}
	return v.Own
}

// zone returns the zone in which a page shows times.
func zone(c echo.Context, v Visitor) *time.Location {
	if zone, known := LoadZone(c.QueryParam(ZoneParam)); known {
		return zone
	}
	name := chosenZone(c.Request())
	if name == tenantZone {
		name = pageTenant(c, v).TimeZone
	}
	if zone, known := LoadZone(name); known {
		return zone
	}
	return time.UTC
}

// zoneChoice returns the form that changes the zone.
func zoneChoice(c echo.Context, v Visitor) views.ZoneChoice {
	choice := views.ZoneChoice{Name: views.Zone(c.Request().Context()).String(), Chosen: chosenZone(c.Request())}
	choice.Options = []views.Option{{Value: "UTC", Label: "UTC"}}
	switch t := pageTenant(c, v); {
	case t.TimeZone != "" && t.TimeZone != "UTC":
		choice.Options = append(choice.Options, views.Option{Value: tenantZone, Label: "Tenant: " + t.TimeZone})
	case v.User.TenantID == "":
		choice.Options = append(choice.Options, views.Option{Value: tenantZone, Label: "Zone of each tenant"})
	}
	if _, named := LoadZone(choice.Chosen); !named && choice.Chosen != tenantZone {
		choice.Chosen = "UTC"
	}
	if !slices.ContainsFunc(choice.Options, func(o views.Option) bool { return o.Value == choice.Chosen }) {
		choice.Options = append(choice.Options, views.Option{Value: choice.Chosen, Label: choice.Chosen})
	}
	return choice
}

// chooseZone is POST /preferences/zone. It stores the time zone in a cookie for a year.
func (w *Shell) chooseZone(c echo.Context, f url.Values) error {
	chosen := strings.TrimSpace(f.Get("zone"))
	if _, known := LoadZone(chosen); !known && chosen != tenantZone {
		return problem.At("zone", "must be UTC, tenant, or a name of the time zone database such as Europe/Berlin")
	}
	c.SetCookie(&http.Cookie{
		Name: zoneCookie, Value: url.QueryEscape(chosen), Path: "/", MaxAge: 365 * 24 * 60 * 60,
		HttpOnly: true, Secure: w.HTTPS(c.Request()), SameSite: http.SameSiteLaxMode,
	})
	return c.Redirect(http.StatusSeeOther, withoutZone(w.Back(f.Get("back")), w.Now()))
}

// withoutZone removes the time zone from an address. The times of a custom period are converted
// to UTC, so that the period stays the same.
func withoutZone(address string, now time.Time) string {
	u, err := url.Parse(address)
	if err != nil || !u.Query().Has(ZoneParam) {
		return address
	}
	q := u.Query()
	if s := ParseTimeRange(q, now, time.UTC); s.Preset == "" && s.Fault == "" {
		q.Set("from", formTime(s.From, time.UTC))
		q.Set("to", formTime(s.To, time.UTC))
	}
	q.Del(ZoneParam)
	u.RawQuery = q.Encode()
	return u.RequestURI()
}
