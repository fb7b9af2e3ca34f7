package helmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../.."
	chart = root + "/deploy/helm/headgate"
)

// created are the values of an installation whose Secret the chart creates.
const created = `
secret:
  databaseURL: postgres://headgate:db-secret@127.0.0.1:1/headgate?sslmode=disable
  redisURL: redis://default:redis-secret@127.0.0.1:1/0
`

// cases are the values that every test of rendered objects uses.
var cases = map[string]string{
	"defaults":        created,
	"existing secret": "secret: {existingSecret: mine}\nmigration: {existingSecret: owner}\n",
	"one node": `
replicaCount: 1
secret: {databaseURL: "postgres://headgate@127.0.0.1:1/headgate"}
migration: {enabled: false}
metrics: {enabled: false}
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
`,
	"all": `
nameOverride: limits
fullnameOverride: limits
image: {digest: "sha256:` + sha + `", pullSecrets: [{name: registry}]}
secret:
  databaseURL: postgres://headgate:db-secret@127.0.0.1:1/headgate?sslmode=disable
  redisURL: redis://default:redis-secret@127.0.0.1:1/0
  bootstrapKey: 0123456789abcdef0123456789abcdef
  adminPassword: 'a long pass: "word"'
  oidcClientSecret: oidc-secret
settings:
  HEADGATE_LOG_LEVEL: debug
  HEADGATE_MAX_CONNECTIONS: 20000
  HEADGATE_MAX_COUNTERS: 4000000
  HEADGATE_REDIS_STRICT: true
  HEADGATE_ADMIN_EMAIL: ann@example.com
  HEADGATE_OIDC_ISSUER: https://id.example.com
  HEADGATE_OIDC_CLIENT_ID: headgate
  HEADGATE_PUBLIC_URL: http://127.0.0.1:1
  GOGC: 100
  OTEL_EXPORTER_OTLP_ENDPOINT: http://collector:4318
http: {port: 8443, service: {type: LoadBalancer, port: 443, annotations: {a: b}}}
resp: {enabled: true}
envoy: {enabled: true, domains: "edge=acme", clientCASecret: ca}
tls: {existingSecret: tls}
shutdown: {delaySeconds: 8, timeoutSeconds: 30}
autoscaling: {enabled: true, minReplicas: 2, maxReplicas: 7, checksPerSecond: 4000}
networkPolicy:
  httpFrom: [{podSelector: {matchLabels: {app: gateway}}}]
  egress: [{ports: [{port: 5432}]}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
serviceAccount: {name: headgate}
podAnnotations: {a: b}
podLabels: {team: edge}
nodeSelector: {pool: edge}
tolerations: [{key: edge, operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
`,
}

const sha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// objects are the rendered objects of one set of values.
type objects struct {
	deployment appsv1.Deployment
	services   map[string]corev1.Service // by component
	secrets    []corev1.Secret
	jobs       []batchv1.Job
	budgets    []policyv1.PodDisruptionBudget
	networks   []networkingv1.NetworkPolicy
	scalers    []autoscalingv2.HorizontalPodAutoscaler
	monitors   []map[string]any
	all        []metav1.PartialObjectMetadata
}

func parse(t *testing.T, text string) (values map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// renderText returns the rendered files by name.
func renderText(values map[string]any) (map[string]string, error) {
	c, err := loader.LoadDir(chart)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "edge", Namespace: "limits", IsInstall: true}
	rendered, err := util.ToRenderValues(c, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, rendered)
}

// render decodes the rendered objects into the types of Kubernetes. Unknown fields are errors.
func render(t *testing.T, text string) (o objects) {
	t.Helper()
	files, err := renderText(parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	o.services = map[string]corev1.Service{}
	for name, file := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(file, -1) {
			var meta metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if meta.Kind == "" {
				continue
			}
			o.all = append(o.all, meta)
			if err := o.add(meta.APIVersion+" "+meta.Kind, []byte(document)); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
		}
	}
	return o
}

func (o *objects) add(kind string, document []byte) (err error) {
	switch kind {
	case "apps/v1 Deployment":
		err = yaml.UnmarshalStrict(document, &o.deployment)
	case "v1 Service":
		var s corev1.Service
		err = yaml.UnmarshalStrict(document, &s)
		o.services[s.Labels["app.kubernetes.io/component"]] = s
	case "v1 Secret":
		o.secrets, err = with(o.secrets, document)
	case "batch/v1 Job":
		o.jobs, err = with(o.jobs, document)
	case "policy/v1 PodDisruptionBudget":
		o.budgets, err = with(o.budgets, document)
	case "networking.k8s.io/v1 NetworkPolicy":
		o.networks, err = with(o.networks, document)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		o.scalers, err = with(o.scalers, document)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		o.monitors, err = with(o.monitors, document)
	default:
		err = fmt.Errorf("the test does not know %s", kind)
	}
	return err
}

func with[T any](list []T, document []byte) ([]T, error) {
	var one T
	err := yaml.UnmarshalStrict(document, &one)
	return append(list, one), err
}

func each(t *testing.T, check func(*testing.T, objects)) {
	t.Helper()
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, render(t, values))
		})
	}
}

func environment(c corev1.Container) map[string]string {
	found := map[string]string{}
	for _, e := range c.Env {
		found[e.Name] = e.Value
	}
	return found
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range cases {
		linter := lint.RunAll(chart, parse(t, values), "limits")
		for _, m := range linter.Messages {
			// An icon is only for catalogs of charts.
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

func TestWrongValuesAreRejected(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"":                                        "set secret.existingSecret, or secret.databaseURL",
		"replicas: 3":                             "replicas",
		"secret: {existingSecrets: a}":            "existingSecrets",
		"http: {ports: 1}":                        "ports",
		"replicaCount: three":                     "replicaCount",
		"secret: {databaseURL: 'sqlite://a'}":     "databaseURL",
		"settings: {HEADGATE_LOG_LEVL: info}":     "HEADGATE_LOG_LEVL",
		"settings: {HEADGATE_ADDR: ':1'}":         "HEADGATE_ADDR",
		"http: {port: 80}":                        "port",
		"secret: {databaseURL: 'postgres://h/d'}": "set secret.redisURL",
		"secret: {existingSecret: a, redisURL: 'redis://h'}":                                      "secret.existingSecret or secret.redisURL",
		"secret: {existingSecret: a}\nenvoy: {enabled: true, clientCASecret: a}":                  "tls.existingSecret",
		"secret: {existingSecret: a}\nshutdown: {delaySeconds: 20, timeoutSeconds: 20}":           "shutdown.timeoutSeconds",
		"secret: {existingSecret: a}\nmetrics: {enabled: false}\nserviceMonitor: {enabled: true}": "metrics.enabled",
	} {
		_, err := renderText(parse(t, values))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", values, err, want)
		}
	}
}

// settings returns the names of docs/settings.md, which a test of cmd/server compares with the program.
func settings(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "settings.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z].*?) \\|").FindAllStringSubmatch(string(text), -1) {
		for _, name := range strings.Split(row[1], ", ") {
			names = append(names, strings.Trim(name, "`"))
		}
	}
	if len(names) < 40 {
		t.Fatalf("%d settings in docs/settings.md", len(names))
	}
	return names
}

// Each setting is one of settings in values.yaml, or the chart sets it.
func TestTheChartKnowsEverySetting(t *testing.T) {
	t.Parallel()
	var schema struct {
		Properties struct {
			Settings struct {
				PropertyNames struct{ Enum []string }
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	free := schema.Properties.Settings.PropertyNames.Enum
	set := environment(render(t, cases["all"]).deployment.Spec.Template.Spec.Containers[0])
	// With Postgres there is no sample, and the chart replaces the file with settings.
	without := []string{"HEADGATE_CONFIG", "HEADGATE_SAMPLE"}
	known := settings(t)
	for _, name := range known {
		_, sets := set[name]
		if !sets && !slices.Contains(free, name) && !slices.Contains(without, name) && !strings.HasSuffix(name, "_FILE") {
			t.Errorf("values.schema.json lacks %s", name)
		}
	}
	for _, name := range free {
		if !slices.Contains(known, name) {
			t.Errorf("values.schema.json has %s, which is no setting", name)
		}
	}
}

// The program accepts the variables that the chart renders: headgate doctor finds no error in them.
func TestTheProgramAcceptsTheSettings(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "headgate")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/server")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	known := settings(t)
	each(t, func(t *testing.T, o objects) {
		c := o.deployment.Spec.Template.Spec.Containers[0]
		folder := t.TempDir()
		certificate(t, folder)
		env := []string{"PATH=" + os.Getenv("PATH")}
		for _, e := range c.Env {
			if !slices.Contains(known, e.Name) {
				t.Errorf("%s is no setting", e.Name)
			}
			value := e.Value
			switch {
			case e.ValueFrom != nil:
				value = secretValue(t, o, e.ValueFrom.SecretKeyRef)
			case strings.HasPrefix(value, "/"):
				if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(value, m.MountPath+"/") }) {
					t.Errorf("%s=%s is in no volume", e.Name, value)
				}
				value = filepath.Join(folder, filepath.Base(value))
			}
			env = append(env, e.Name+"="+value)
		}
		doctor := exec.CommandContext(t.Context(), program, "doctor", "-o", "json", "--wait", "10s")
		doctor.Env = env
		var problems strings.Builder
		doctor.Stderr = &problems
		out, err := doctor.Output()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Fatal(err)
		}
		var is struct {
			Findings []struct{ Check, Status, Detail string }
		}
		if err := json.Unmarshal(out, &is); err != nil {
			t.Fatalf("%v: %s%s", err, out, problems.String())
		}
		checked := false
		for _, f := range is.Findings {
			if f.Check == "settings" || f.Check == "snapshot-file" || f.Check == "secrets" {
				checked = checked || f.Check == "settings"
				if f.Status != "ok" {
					t.Errorf("%+v", f)
				}
			}
		}
		if !checked {
			t.Errorf("doctor did not check the settings: %s", out)
		}
	})
}

// secretValue is the value of a key of the created Secret, or an example for an existing one.
func secretValue(t *testing.T, o objects, ref *corev1.SecretKeySelector) string {
	t.Helper()
	for _, s := range o.secrets {
		if s.Name == ref.Name {
			value, ok := s.StringData[ref.Key]
			if !ok && (ref.Optional == nil || !*ref.Optional) {
				t.Errorf("the Secret %s has no %s", ref.Name, ref.Key)
			}
			return value
		}
	}
	if ref.Name != "mine" && ref.Name != "owner" {
		t.Errorf("there is no Secret %s", ref.Name)
	}
	return map[string]string{
		"database-url": "postgres://headgate@127.0.0.1:1/headgate", "redis-url": "redis://127.0.0.1:1",
	}[ref.Key]
}

func TestPortsAgree(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, o objects) {
		c := o.deployment.Spec.Template.Spec.Containers[0]
		env := environment(c)
		settingOf := map[string]string{
			"http": "HEADGATE_ADDR", "metrics": "HEADGATE_METRICS_ADDR", "resp": "HEADGATE_RESP_ADDR", "envoy": "HEADGATE_ENVOY_ADDR",
		}
		used := map[int32]bool{}
		for _, p := range c.Ports {
			if got, want := env[settingOf[p.Name]], fmt.Sprintf(":%d", p.ContainerPort); got != want || used[p.ContainerPort] {
				t.Errorf("the port %s is %s, and %s is %q", p.Name, want, settingOf[p.Name], got)
			}
			used[p.ContainerPort] = true
			s := o.services[p.Name]
			if len(s.Spec.Ports) != 1 || s.Spec.Ports[0].TargetPort.String() != p.Name {
				t.Errorf("no Service leads to %s: %+v", p.Name, s.Spec.Ports)
			} else if s.Spec.ClusterIP == "None" && s.Spec.Ports[0].Port != p.ContainerPort {
				t.Errorf("the headless Service of %s has the port %d", p.Name, s.Spec.Ports[0].Port)
			}
		}
		for name, setting := range settingOf {
			if _, open := env[setting]; open != slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name }) {
				t.Errorf("%s and the port %s disagree", setting, name)
			}
		}
		if len(o.services) != len(c.Ports) {
			t.Errorf("%d Services for %d ports", len(o.services), len(c.Ports))
		}
		for _, n := range o.networks {
			if len(n.Spec.Ingress) != len(c.Ports) {
				t.Errorf("the NetworkPolicy opens %d of %d ports", len(n.Spec.Ingress), len(c.Ports))
			}
		}
	})
}

func TestProbes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, o objects) {
		c := o.deployment.Spec.Template.Spec.Containers[0]
		scheme := corev1.URISchemeHTTP
		if environment(c)["HEADGATE_TLS_CERT_FILE"] != "" {
			scheme = corev1.URISchemeHTTPS
		}
		for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != scheme || probe.HTTPGet.Port.String() != "http" {
				t.Errorf("the probe of %s is %+v", path, probe.HTTPGet)
			}
		}
		if got := c.StartupProbe.HTTPGet; got.Path != "/livez" || got.Scheme != scheme {
			t.Errorf("the startup probe is %+v", got)
		}
	})
}

func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, o objects) {
		specs := []corev1.PodSpec{o.deployment.Spec.Template.Spec}
		for _, j := range o.jobs {
			specs = append(specs, j.Spec.Template.Spec)
		}
		for _, spec := range specs {
			s := spec.Containers[0].SecurityContext
			if !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || *s.RunAsUser == 0 ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("the security context is %+v", s)
			}
			if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks {
				t.Error("the pod has a token, or the variables of services")
			}
		}
	})
}

// A stop waits at most twice the timeout. Kubernetes must not kill the node before that.
func TestTheGracePeriodIsLongerThanAStop(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, o objects) {
		spec := o.deployment.Spec.Template.Spec
		timeout, err := time.ParseDuration(environment(spec.Containers[0])["HEADGATE_SHUTDOWN_TIMEOUT"])
		if err != nil {
			t.Fatal(err)
		}
		if grace := time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second; grace <= 2*timeout {
			t.Errorf("the grace period is %s, and a stop takes up to %s", grace, 2*timeout)
		}
	})
}

// Selectors match the pods of nodes, and no pod of the migration.
func TestSelectors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, o objects) {
		selectors := []map[string]string{o.deployment.Spec.Selector.MatchLabels}
		for _, s := range o.services {
			selectors = append(selectors, s.Spec.Selector)
		}
		for _, b := range o.budgets {
			selectors = append(selectors, b.Spec.Selector.MatchLabels)
		}
		for _, n := range o.networks {
			selectors = append(selectors, n.Spec.PodSelector.MatchLabels)
		}
		for _, selector := range selectors {
			if !matches(selector, o.deployment.Spec.Template.Labels) {
				t.Errorf("%v does not match a node", selector)
			}
			for _, j := range o.jobs {
				if matches(selector, j.Spec.Template.Labels) {
					t.Errorf("%v matches the migration", selector)
				}
			}
		}
	})
}

func matches(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// The migration runs before all objects that are no hooks, with a Secret that exists at that time.
func TestTheMigrationIsAHook(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, o objects) {
		for _, j := range o.jobs {
			c := j.Spec.Template.Spec.Containers[0]
			if !slices.Equal(c.Args, []string{"migrate", "up"}) {
				t.Errorf("the Job runs %v", c.Args)
			}
			if j.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" {
				t.Errorf("the hook is %q", j.Annotations["helm.sh/hook"])
			}
			for _, e := range c.Env {
				secretValue(t, o, e.ValueFrom.SecretKeyRef)
				if got := e.ValueFrom.SecretKeyRef.Name; len(o.secrets) == 0 && got != "owner" {
					t.Errorf("the migration uses the Secret %s, and not that of the owner", got)
				}
				for _, s := range o.secrets {
					if s.Name == e.ValueFrom.SecretKeyRef.Name && s.Annotations["helm.sh/hook"] != j.Annotations["helm.sh/hook"] {
						t.Errorf("the Secret %s does not exist before the installation", s.Name)
					}
				}
			}
			if c.Image != o.deployment.Spec.Template.Spec.Containers[0].Image {
				t.Errorf("the migration has the image %s", c.Image)
			}
		}
	})
}

func TestValuesChooseObjects(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"defaults":        "1 budgets, 1 networks, 0 scalers, 0 monitors, 1 jobs, 2 secrets, 3 replicas, HEADGATE_NODES=3",
		"existing secret": "1 budgets, 1 networks, 0 scalers, 0 monitors, 1 jobs, 0 secrets, 3 replicas, HEADGATE_NODES=3",
		"one node":        "0 budgets, 0 networks, 0 scalers, 0 monitors, 0 jobs, 1 secrets, 1 replicas, HEADGATE_NODES=1",
		"all":             "1 budgets, 1 networks, 1 scalers, 1 monitors, 1 jobs, 2 secrets, 0 replicas, HEADGATE_NODES=7",
	} {
		o := render(t, cases[name])
		replicas := int32(0)
		if o.deployment.Spec.Replicas != nil {
			replicas = *o.deployment.Spec.Replicas
		}
		got := fmt.Sprintf("%d budgets, %d networks, %d scalers, %d monitors, %d jobs, %d secrets, %d replicas, HEADGATE_NODES=%s",
			len(o.budgets), len(o.networks), len(o.scalers), len(o.monitors), len(o.jobs), len(o.secrets), replicas,
			environment(o.deployment.Spec.Template.Spec.Containers[0])["HEADGATE_NODES"])
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestTheScalerUsesChecksOrTheProcessor(t *testing.T) {
	t.Parallel()
	checks := render(t, cases["all"]).scalers[0].Spec.Metrics
	if len(checks) != 1 || checks[0].Pods == nil || checks[0].Pods.Target.AverageValue.String() != "4k" {
		t.Errorf("%+v", checks)
	}
	processor := render(t, created+"autoscaling: {enabled: true}\n").scalers[0].Spec
	if len(processor.Metrics) != 1 || processor.Metrics[0].Resource == nil || *processor.Metrics[0].Resource.Target.AverageUtilization != 70 {
		t.Errorf("%+v", processor.Metrics)
	}
}

// The alerts of deploy/grafana read the job headgate.
func TestTheMonitorFindsTheMetrics(t *testing.T) {
	t.Parallel()
	o := render(t, cases["all"])
	text, err := json.Marshal(o.monitors[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"replacement":"headgate","targetLabel":"job"`, `"path":"/metrics"`, `"port":"http"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the ServiceMonitor lacks %s: %s", want, text)
		}
	}
	s := o.services["metrics"]
	if s.Spec.Ports[0].Name != "http" || s.Labels["app.kubernetes.io/instance"] != "edge" {
		t.Errorf("the ServiceMonitor does not select %+v", s.ObjectMeta)
	}
}

// No password is outside a Secret, and names are unique.
func TestSecretsStayInSecrets(t *testing.T) {
	t.Parallel()
	files, err := renderText(parse(t, cases["all"]))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			if !strings.Contains(document, "\nkind: Secret\n") && strings.Contains(document, "-secret@") {
				t.Errorf("%s has a password", name)
			}
		}
	}
	each(t, func(t *testing.T, o objects) {
		seen := map[string]bool{}
		for _, m := range o.all {
			if key := m.Kind + "/" + m.Name; seen[key] {
				t.Errorf("%s is rendered twice", key)
			} else {
				seen[key] = true
			}
		}
	})
}
