package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The environment variables that this package reads. The exporter of OpenTelemetry reads the other variables that
// start with OTEL_EXPORTER_OTLP_: headers, certificates, compression, timeout.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	disabledVariable       = "OTEL_SDK_DISABLED"
	exporterVariable       = "OTEL_TRACES_EXPORTER"
	samplerVariable        = "OTEL_TRACES_SAMPLER"
	samplerArgVariable     = "OTEL_TRACES_SAMPLER_ARG"
	nameVariable           = "OTEL_SERVICE_NAME"
	resourceVariable       = "OTEL_RESOURCE_ATTRIBUTES"
)

// defaultRatio is the fraction of new traces that are sampled. Checks are short and
// frequent, so a small sample is sufficient.
const defaultRatio = 0.01

type environment func(string) string

// endpoint returns the URL of the collector, or "" if tracing is off.
func (env environment) endpoint() (string, error) {
	if strings.EqualFold(env(disabledVariable), "true") || env(exporterVariable) == "none" {
		return "", nil
	}
	if text := env(tracesEndpointVariable); text != "" {
		u, err := parseEndpoint(text)
		if err != nil {
			return "", fmt.Errorf("%s: %w", tracesEndpointVariable, err)
		}
		return u.String(), nil
	}
	text := env(endpointVariable)
	if text == "" {
		return "", nil
	}
	u, err := parseEndpoint(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", endpointVariable, err)
	}
	return u.JoinPath("v1", "traces").String(), nil
}

// parseEndpoint parses the URL of a collector. Its errors do not contain the URL, which may contain a token.
func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("must be a URL like http://collector:4318")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("must have no user, query or fragment; credentials go into OTEL_EXPORTER_OTLP_HEADERS")
	}
	return u, nil
}

// sampler returns the sampler of OpenTelemetry, which selects the requests that are traced.
func (env environment) sampler() (sdk.Sampler, error) {
	name := strings.ToLower(strings.TrimSpace(env(samplerVariable)))
	switch name {
	case "":
		return sdk.ParentBased(sdk.TraceIDRatioBased(defaultRatio)), nil
	case "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "parentbased_always_on":
		return sdk.ParentBased(sdk.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample()), nil
	case "traceidratio", "parentbased_traceidratio":
		ratio, err := env.ratio()
		if err != nil || name == "traceidratio" {
			return ratio, err
		}
		return sdk.ParentBased(ratio), nil
	}
	return nil, fmt.Errorf("%s: %q is none of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, "+
		"parentbased_traceidratio",
		samplerVariable, name)
}

func (env environment) ratio() (sdk.Sampler, error) {
	text := strings.TrimSpace(env(samplerArgVariable))
	if text == "" {
		return sdk.TraceIDRatioBased(1), nil // the default of OpenTelemetry
	}
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return nil, fmt.Errorf("%s: %q is not a number from 0 to 1", samplerArgVariable, text)
	}
	return sdk.TraceIDRatioBased(ratio), nil
}

// resource returns the attributes of this service.
func (env environment) resource(version string) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{semconv.ServiceName("headgate"), semconv.ServiceVersion(version)}
	if text := env(resourceVariable); strings.TrimSpace(text) != "" {
		for pair := range strings.SplitSeq(text, ",") {
			name, value, found := strings.Cut(pair, "=")
			name = strings.TrimSpace(name)
			value, err := url.PathUnescape(strings.TrimSpace(value))
			if !found || name == "" || err != nil {
				return nil, fmt.Errorf("%s: must be name=value,name=value with percent-encoded values", resourceVariable)
			}
			attributes = append(attributes, attribute.String(name, value))
		}
	}
	if name := env(nameVariable); name != "" {
		attributes = append(attributes, semconv.ServiceName(name))
	}
	return resource.NewWithAttributes(semconv.SchemaURL, attributes...), nil // if an attribute occurs several times, the last value is used
}
