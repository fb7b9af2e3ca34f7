// Package manage has the management calls of Headgate: tenants, plans, keys, exceptions,
// analytics and the rest of openapi.yaml, except checks. The types and methods are
// generated.
//
//	management := manage.New(client)
//	tenant, err := management.GetTenant(ctx, "acme")
//	tenant.Data.Tenant.Plan = "pro"
//	_, err = management.UpdateTenant(ctx, "acme", tenant.Data.Tenant, tenant.ETag)
//
// An error is a *headgate.ProblemError or a *headgate.UnreachableError.
package manage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"

	headgate "github.com/headgate/headgate/sdk/go"
)

// A Client makes management calls. Its key needs the scope read or manage.
type Client struct{ calls *headgate.Client }

// New returns a client that shares the connections and the key of a headgate.Client.
func New(client *headgate.Client) *Client { return &Client{client} }

// An Answer has the decoded data of a response, and the headers that callers need.
type Answer[T any] struct {
	Data T
	// ETag is the version of the object, for If-Match.
	ETag string
	// RequestID is the ID under which the server logs the call.
	RequestID string
	// Replayed says that this is the response to an earlier call with the same Idempotency-Key.
	Replayed bool
	Header   http.Header
}

// A Nullable is an optional member that may also be null, as in a merge patch.
type Nullable[T any] struct {
	Set   bool // the member is sent
	Value *T   // nil: null
}

// Null returns a member that is null.
func Null[T any]() Nullable[T] { return Nullable[T]{Set: true} }

// Value returns a member with a value.
func Value[T any](value T) Nullable[T] { return Nullable[T]{Set: true, Value: &value} }

// IsZero reports whether the member is left out.
func (n Nullable[T]) IsZero() bool { return !n.Set }

// MarshalJSON returns the value, or null.
func (n Nullable[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.Value) }

// UnmarshalJSON sets the value. It is called only if the member is present.
func (n *Nullable[T]) UnmarshalJSON(text []byte) error {
	n.Set = true
	return json.Unmarshal(text, &n.Value)
}

type call struct {
	method, path   string
	query          query
	body           any
	bodyType       string
	ifMatch        string
	idempotent     bool
	idempotencyKey string
}

type query url.Values

// add adds a query parameter, unless its value is empty. The members of an object become parameters
// of the form name[member].
func (q query) add(name string, value any) {
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Map:
		for _, key := range v.MapKeys() {
			url.Values(q).Add(fmt.Sprintf("%s[%s]", name, key), fmt.Sprint(v.MapIndex(key)))
		}
	case reflect.String:
		if v.String() != "" {
			url.Values(q).Set(name, v.String())
		}
	default:
		url.Values(q).Set(name, fmt.Sprint(v.Interface()))
	}
}

// first returns the first element of params. If there is none, it returns the zero value.
func first[T any](params []T) T {
	var none T
	if len(params) > 0 {
		return params[0]
	}
	return none
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func send[T any](ctx context.Context, c *Client, to call) (Answer[T], error) {
	raw := headgate.RawCall{Method: to.method, Path: to.path, Query: url.Values(to.query), Header: http.Header{}}
	if to.body != nil {
		text, err := json.Marshal(to.body)
		if err != nil {
			return Answer[T]{}, err
		}
		raw.Body = text
	}
	if to.bodyType != "" {
		raw.Header.Set("Content-Type", to.bodyType)
	}
	if to.ifMatch != "" {
		raw.Header.Set("If-Match", to.ifMatch)
	}
	if to.idempotent {
		if to.idempotencyKey == "" {
			to.idempotencyKey = rand.Text()
		}
		raw.Header.Set("Idempotency-Key", to.idempotencyKey)
	}
	answer, err := c.calls.Raw(ctx, raw)
	if err != nil {
		return Answer[T]{}, err
	}
	got := Answer[T]{
		ETag: answer.Header.Get("ETag"), RequestID: answer.Header.Get("X-Request-Id"),
		Replayed: answer.Header.Get("Idempotent-Replayed") == "true", Header: answer.Header,
	}
	switch data := any(&got.Data).(type) {
	case *struct{}:
	case *string:
		*data = string(answer.Body)
	default:
		if err := json.Unmarshal(answer.Body, data); err != nil {
			return got, fmt.Errorf("headgate: %s %s: %w", to.method, to.path, err)
		}
	}
	return got, nil
}
