package headgate

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
)

// MiddlewareConfig configures Middleware. Client is required.
type MiddlewareConfig struct {
	Client *Client
	// Tenant returns the tenant of a request. Default: the tenant of the client's key.
	Tenant func(*http.Request) string
	// Attributes returns the values that policies count by. Default: none.
	Attributes func(*http.Request) map[string]string
	// Cost returns the quota units of a request. Default: 1.
	Cost func(*http.Request) int64
	// Skip reports whether a request passes unchecked, such as a health check. Default:
	// none passes.
	Skip func(*http.Request) bool
	// Shadow lets every request pass, and logs the denials. Requests are charged, and no
	// header is set. Default: false.
	Shadow bool
	// Denied writes the response to a denied request. Default: WriteDenial.
	Denied func(http.ResponseWriter, *http.Request, Decision)
	// Log receives the denials of Shadow. Default: slog.Default.
	Log *slog.Logger
}

type contextKey struct{}

// FromContext returns the decision that Middleware made about the request to which ctx belongs.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(contextKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}

// Middleware checks each request before the handler serves it. It sets RateLimit,
// RateLimit-Policy and Retry-After in the response. If the request is denied, it writes the
// response, and the handler is not called. If a leaky_bucket or a policy in mode delay delays the
// request, it waits. If the client leaves meanwhile, the handler is not called. The handler reads
// Decision.Serve with FromContext.
func Middleware(config MiddlewareConfig) func(http.Handler) http.Handler {
	if config.Denied == nil {
		config.Denied = WriteDenial
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if config.Skip != nil && config.Skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			d := config.Client.Check(r.Context(), config.request(r))
			if !d.Allowed && config.Shadow {
				config.Log.WarnContext(r.Context(), "headgate would deny this request", "method", r.Method, "path", r.URL.Path,
					"reason", d.Reason, "policies", d.ViolatedPolicies, "decision_id", d.DecisionID, "error", d.Err)
			}
			if !config.Shadow {
				d.SetHeaders(w.Header())
			}
			if !d.Allowed && !config.Shadow {
				config.Denied(w, r, d)
				return
			}
			if !config.Shadow && d.Wait(r.Context()) != nil {
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, &d)))
		})
	}
}

func (config *MiddlewareConfig) request(r *http.Request) CheckRequest {
	request := CheckRequest{Method: r.Method, Path: r.URL.EscapedPath()}
	if config.Tenant != nil {
		request.Tenant = config.Tenant(r)
	}
	if config.Attributes != nil {
		request.Attributes = config.Attributes(r)
	}
	if config.Cost != nil {
		request.Cost = Cost(config.Cost(r))
	}
	return request
}

// denialBody is the body of the response to a denied request. It contains nothing about the
// tenant's plan.
type denialBody struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	DecisionID       string   `json:"decision_id,omitempty"`
}

// WriteDenial writes a response to a denied request: the status of the denial, and an RFC 9457
// problem.
func WriteDenial(w http.ResponseWriter, _ *http.Request, d Decision) {
	body := denialBody{"about:blank", http.StatusText(d.Status), d.Status, "", d.ViolatedPolicies, d.DecisionID}
	if d.Status == http.StatusTooManyRequests {
		body.Detail = d.Detail
	}
	if len(d.ViolatedPolicies) > 0 && d.Reason == ReasonOverLimit {
		body.Type, body.Title = d.Type, d.Title
	}
	text, _ := json.Marshal(body) // cannot fail: all fields are strings and numbers
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(d.Status)
	_, _ = w.Write(text)
}
