package tracing

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement/inprocess"
)

func TestWrongSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value string }{
		{endpointVariable, "collector:4318"},
		{endpointVariable, "://" + canary},
		{endpointVariable, "grpc://collector:4317"},
		{endpointVariable, "http://"},
		{endpointVariable, "https://user:" + canary + "@collector:4318"},
		{endpointVariable, "https://collector:4318?token=" + canary},
		{tracesEndpointVariable, "/v1/traces"},
		{samplerVariable, "sometimes"},
		{samplerArgVariable, "2"},
		{samplerArgVariable, "NaN"},
		{resourceVariable, "team"},
		{resourceVariable, "team=%zz"},
	} {
		settings := map[string]string{endpointVariable: "http://127.0.0.1:4318"}
		if c.name == samplerArgVariable {
			settings[samplerVariable] = "parentbased_traceidratio"
		}
		settings[c.name] = c.value
		tracer, err := Start(t.Context(), Config{Getenv: func(name string) string { return settings[name] }})
		if err == nil || tracer != nil || !strings.HasPrefix(err.Error(), c.name+": ") {
			t.Errorf("%s=%s: %v, want an error that names it", c.name, c.value, err)
			continue
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error repeats a secret: %v", c.name, err)
		}
	}
}

func TestWhatTurnsTracingOff(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{disabledVariable: "true", exporterVariable: "none", endpointVariable: ""} {
		settings := map[string]string{endpointVariable: "http://127.0.0.1:4318"}
		settings[name] = value
		tracer, err := Start(t.Context(), Config{Getenv: func(name string) string { return settings[name] }})
		if err != nil || tracer != nil {
			t.Errorf("%s=%q: %v, %v, want nothing", name, value, tracer, err)
		}
	}
}

func TestSamplers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, arg, want string }{
		{"", "", "ParentBased{root:TraceIDRatioBased{0.01}"},
		{"always_on", "", "AlwaysOnSampler"},
		{"always_off", "", "AlwaysOffSampler"},
		{"parentbased_always_on", "", "ParentBased{root:AlwaysOnSampler"},
		{"parentbased_always_off", "", "ParentBased{root:AlwaysOffSampler"},
		{"traceidratio", "0.25", "TraceIDRatioBased{0.25}"},
		{"Parentbased_TraceIDRatio", " 0.5 ", "ParentBased{root:TraceIDRatioBased{0.5}"},
		{"parentbased_traceidratio", "", "ParentBased{root:TraceIDRatioBased{1}"},
	} {
		settings := map[string]string{samplerVariable: c.name, samplerArgVariable: c.arg}
		s, err := environment(func(name string) string { return settings[name] }).sampler()
		if err != nil || !strings.HasPrefix(s.Description(), c.want) {
			t.Errorf("%q with %q: %v, %v, want %s", c.name, c.arg, s, err, c.want)
		}
	}
}

func TestWhereSpansGoAndWhoSentThem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings map[string]string
		path     string
		resource map[string]string
	}{
		"base": {
			nil, "/v1/traces",
			map[string]string{"service.name": "headgate", "service.version": "1.2.3"},
		},
		"base with a path": {
			map[string]string{endpointVariable: "/otlp/"},
			"/otlp/v1/traces",
			map[string]string{"service.name": "headgate", "service.version": "1.2.3"},
		},
		"of traces": {
			map[string]string{tracesEndpointVariable: "/spans", resourceVariable: "service.name=edge, team=a%20b", endpointVariable: "not used"},
			"/spans",
			map[string]string{"service.name": "edge", "service.version": "1.2.3", "team": "a b"},
		},
		"named": {
			map[string]string{nameVariable: "limits", resourceVariable: "service.name=edge"},
			"/v1/traces",
			map[string]string{"service.name": "limits", "service.version": "1.2.3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			collector := newCollector(t)
			settings := maps.Clone(c.settings)
			for _, variable := range []string{endpointVariable, tracesEndpointVariable} {
				if path := settings[variable]; strings.HasPrefix(path, "/") {
					settings[variable] = collector.URL + path
				}
			}
			tracer := collector.tracer(t, settings)
			ask(tracer.Handler(checks(inprocess.New(inprocess.Config{})), checkRoute))
			shutdown(t, tracer)
			if !slices.Equal(collector.paths, []string{c.path}) || !maps.Equal(collector.resource, c.resource) {
				t.Errorf("sent to %q by %v, want %q by %v", collector.paths, collector.resource, c.path, c.resource)
			}
		})
	}
}
