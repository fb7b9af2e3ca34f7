package envoy

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/http2"
	"github.com/headgate/headgate/internal/problem"
)

// authorization is the gRPC service Authorization, which Envoy's filter ext_authz calls.
type authorization struct {
	authv3.UnimplementedAuthorizationServer
	*Server
}

// optionPrefix is the beginning of the names of options in the metadata of a call.
const optionPrefix = "headgate-"

// optionNames has those options of /v1/forward-auth that Check accepts.
var optionNames = []string{"attributes", "jwt", "cost", "tenant", "idempotency", "lease", "lease_ttl_ms", "refundable"}

// optionFault returns an error if the name of a metadata value has the prefix of an option, but is not that of an
// option in known. Names of context extensions have no prefix, so optionFault is not called for them: an unknown extension can be
// for another filter.
func optionFault(name string, known []string) error {
	option, prefixed := strings.CutPrefix(name, optionPrefix)
	if !prefixed || slices.Contains(known, option) {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "%.64q is not an option: after %s, the name must be one of %s",
		name, optionPrefix, strings.Join(known, ", "))
}

// Check decides one request, which Envoy describes in r. The options are those of /v1/forward-auth, such as attributes, cost and tenant.
// Envoy sends them as context extensions of the route, or as metadata of the call with the prefix headgate-. Both come from the
// configuration of Envoy, and never from the client.
//
// grpc-go calls this method only for calls that package http2 does not serve, such as those with compressed messages.
func (s *authorization) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	decider, who, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	sent, _ := metadata.FromIncomingContext(ctx)
	for name := range sent {
		if err := optionFault(name, optionNames); err != nil {
			return nil, err
		}
	}
	return s.decide(ctx, decider, who, r, func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) })
}

// serve answers one call.
func (s *authorization) serve(ctx context.Context, sent []*http2.Call) {
	c := sent[0]
	decider, who, err := s.callerOf(c)
	var r authv3.CheckRequest
	if err == nil {
		err = decode(c, &r)
	}
	for i := 0; i < len(c.Header) && err == nil; i++ {
		err = optionFault(c.Header[i].Name, optionNames)
	}
	var response *authv3.CheckResponse
	if err == nil {
		response, err = s.decide(ctx, decider, who, &r, c.Values)
	}
	answerOrFail(c, response, err)
}

// decide decides the check of a request. values returns the values of the call's metadata with a
// given name.
func (*authorization) decide(
	ctx context.Context, decider *api.API, who api.Caller, r *authv3.CheckRequest, values func(name string) []string,
) (*authv3.CheckResponse, error) {
	original, err := originalRequest(ctx, r.GetAttributes())
	if err != nil {
		return nil, err
	}
	extensions := r.GetAttributes().GetContextExtensions()
	option := func(name string) string {
		if value, ok := extensions[name]; ok {
			return value
		}
		return strings.Join(values(optionPrefix+name), ",")
	}
	var response *authv3.CheckResponse
	var failed error
	use := func(d *enforcement.Decision) { response, failed = respond(decider, d) }
	err = decider.DecideForwarded(original, who, option, use)
	if err == nil {
		return response, failed
	}
	p := api.Problem(err)
	ofClient := strings.HasPrefix(p.Code, "too_many_") // the client sends the idempotency keys, or makes the refundable checks
	if p.Kind == problem.Internal || p.Kind == problem.Unavailable && !ofClient {
		return nil, statusOf(err, "") // the filter applies failure_mode_allow
	}
	code, header, body := decider.Rejection(err)
	return denied(code, header, body), nil
}

// denied returns a response that makes Envoy answer the client with this status and body. Invalid requests get such a response too. If
// the call failed with an error instead, the filter would apply failure_mode_allow, and a client could bypass its limits by sending an
// invalid value.
func denied(code int, header http.Header, body []byte) *authv3.CheckResponse {
	return &authv3.CheckResponse{
		Status: status.New(codes.PermissionDenied, "").Proto(),
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(code)}, Headers: headerOptions(header), Body: string(body),
		}},
	}
}

// originalRequest returns the request that a client sent to Envoy.
func originalRequest(ctx context.Context, a *authv3.AttributeContext) (*http.Request, error) {
	sent := a.GetRequest().GetHttp()
	if sent == nil {
		return nil, status.Error(codes.InvalidArgument, "attributes.request.http: is required")
	}
	header := make(http.Header, len(sent.GetHeaders()))
	for name, value := range sent.GetHeaders() {
		header.Add(name, value)
	}
	for _, h := range sent.GetHeaderMap().GetHeaders() { // set by Envoy's option encode_raw_headers, which does not join repeated headers
		value := h.GetValue()
		if len(h.GetRawValue()) > 0 {
			value = string(h.GetRawValue())
		}
		header.Add(h.GetKey(), value)
	}
	peer := a.GetSource().GetAddress().GetSocketAddress()
	r := &http.Request{
		Method: sent.GetMethod(), URL: &url.URL{Path: "/"}, Host: sent.GetHost(), Header: header, RequestURI: sent.GetPath(),
		RemoteAddr: net.JoinHostPort(peer.GetAddress(), strconv.FormatUint(uint64(peer.GetPortValue()), 10)),
	}
	return r.WithContext(ctx), nil
}

// respond returns the response for a decision. Its status, headers and body are those of the
// response to POST /v1/check. Its dynamic metadata has the members of the body. If the node is
// overloaded, it returns an error, so that the filter applies failure_mode_allow.
func respond(decider *api.API, d *enforcement.Decision) (*authv3.CheckResponse, error) {
	if d.Reason == enforcement.ReasonOverloaded {
		return nil, status.Error(codes.Unavailable, "too many checks wait on this node: nothing was charged")
	}
	code, header := decider.Answer(d)
	body := decider.AppendBody(nil, d)
	response := &authv3.CheckResponse{Status: status.New(codes.OK, "").Proto()}
	if d.Allowed {
		header.Del("Content-Type")
		header.Del("Cache-Control")
		upstream, client := softHeaders(header)
		response.HttpResponse = &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			Headers: headerOptions(upstream), HeadersToRemove: client, ResponseHeadersToAdd: headerOptions(header),
		}}
	} else {
		response = denied(code, header, body)
	}
	return response, setMetadata(response, body)
}

// setMetadata sets the dynamic metadata of a response to a JSON object. It encodes the field itself and adds the bytes
// as an unknown field of the message, because building a structpb.Struct would cost more time.
func setMetadata(response *authv3.CheckResponse, object []byte) error {
	fields, _, err := appendMessage(make([]byte, 0, 2*len(object)), string(object), metadataField, appendObject)
	if err != nil {
		return err
	}
	response.ProtoReflect().SetUnknown(fields)
	return nil
}

// metadataField is the number of the field dynamic_metadata of CheckResponse.
var metadataField = (&authv3.CheckResponse{}).ProtoReflect().Descriptor().Fields().ByName("dynamic_metadata").Number()

// softHeaders selects two headers of an allowed decision for the service behind the proxy:
// DelayHeader says how long to wait, and ServeHeader says to serve a cheap response. upstream holds
// those that the decision has. client holds the names of those that it does not have. The proxy
// removes these from the client's request, so that a client cannot set them.
func softHeaders(header http.Header) (upstream http.Header, client []string) {
	upstream = http.Header{}
	for _, name := range [...]string{api.DelayHeader, api.ServeHeader} {
		if values, has := header[name]; has {
			upstream[name] = values
		} else {
			client = append(client, name)
		}
	}
	return upstream, client
}

// headerOptions converts headers to Envoy's type. Each header replaces an existing header with the
// same name.
func headerOptions(header http.Header) []*corev3.HeaderValueOption {
	values := headerValues(header)
	options := make([]*corev3.HeaderValueOption, len(values))
	for i, v := range values {
		options[i] = &corev3.HeaderValueOption{Header: v, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
	}
	return slices.Clip(options)
}
