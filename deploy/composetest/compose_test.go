package composetest

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const root = "../.."

var secrets = []string{
	"HEADGATE_POSTGRES_PASSWORD=postgres-secret",
	"HEADGATE_REDIS_PASSWORD=redis-secret",
	"HEADGATE_BOOTSTRAP_KEY=0123456789abcdef0123456789abcdef",
}

func load(env ...string) (*types.Project, error) {
	return loadWith(nil, env...)
}

// loadWith loads the services of these profiles too.
func loadWith(profiles []string, env ...string) (*types.Project, error) {
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithEnv(env), cli.WithProfiles(profiles))
	if err != nil {
		return nil, err
	}
	return options.LoadProject(context.Background())
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// whole is the project with the services of every profile.
func whole(t *testing.T) *types.Project {
	t.Helper()
	p, err := loadWith([]string{"*"}, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func nodes(p *types.Project) []types.ServiceConfig {
	var found []types.ServiceConfig
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		if s := p.Services[name]; strings.HasPrefix(s.Image, "headgate:") {
			found = append(found, s)
		}
	}
	return found
}

func TestThereIsNoPasswordUntilTheUserGivesOne(t *testing.T) {
	t.Parallel()
	for i, missing := range secrets {
		name, _, _ := strings.Cut(missing, "=")
		given := slices.Delete(slices.Clone(secrets), i, i+1)
		if _, err := load(given...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v, want an error that names it", name, err)
		}
	}
}

func TestThreeNodesShareOneDatabaseAndOneRedis(t *testing.T) {
	t.Parallel()
	found := nodes(project(t))
	if len(found) != 3 {
		t.Fatalf("%d nodes, want 3", len(found))
	}
	want := map[string]string{
		"HEADGATE_ADDR":          "0.0.0.0:8080",
		"HEADGATE_METRICS_ADDR":  "0.0.0.0:9464",
		"HEADGATE_NODES":         "3",
		"HEADGATE_DATABASE_URL":  "postgres://headgate:postgres-secret@postgres:5432/headgate?sslmode=disable",
		"HEADGATE_REDIS_URL":     "redis://default:redis-secret@valkey:6379/0",
		"HEADGATE_BOOTSTRAP_KEY": "0123456789abcdef0123456789abcdef",
	}
	for _, n := range found {
		for name, value := range want {
			if got := n.Environment[name]; got == nil || *got != value {
				t.Errorf("%s: %s is not %q", n.Name, name, value)
			}
		}
		for _, server := range []string{"postgres", "valkey"} {
			if got := n.DependsOn[server].Condition; got != types.ServiceConditionHealthy {
				t.Errorf("%s starts when %s is %q, want %q", n.Name, server, got, types.ServiceConditionHealthy)
			}
		}
		if !n.ReadOnly {
			t.Errorf("%s can write to its root", n.Name)
		}
		if !slices.Contains(n.Tmpfs, "/tmp") {
			t.Errorf("%s has no /tmp in memory", n.Name)
		}
		if len(n.Ports) > 0 {
			t.Errorf("%s is reachable past the proxy", n.Name)
		}
	}
}

func TestEveryServiceHasAHealthCheckAndAPinnedImage(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:(v?\d+[\w.-]*@sha256:[0-9a-f]{64}|local)$`)
	for name, s := range whole(t).Services {
		if s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) < 2 {
			t.Errorf("%s has no health check", name)
		}
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q names no version or no digest", name, s.Image)
		}
	}
}

func TestDataOutlivesTheContainers(t *testing.T) {
	t.Parallel()
	p := whole(t)
	for service, target := range map[string]string{
		"postgres":   "/var/lib/postgresql", // not .../data: the image moved it with 18
		"valkey":     "/data",
		"prometheus": "/prometheus",
	} {
		i := slices.IndexFunc(p.Services[service].Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == target })
		if i < 0 {
			t.Errorf("%s has no volume at %s", service, target)
			continue
		}
		v := p.Services[service].Volumes[i]
		if _, declared := p.Volumes[v.Source]; v.Type != types.VolumeTypeVolume || !declared {
			t.Errorf("%s keeps %s in %s %q, want a named volume", service, target, v.Type, v.Source)
		}
	}
}

func TestCountersAreKeptAndNeverDropped(t *testing.T) {
	t.Parallel()
	command := strings.Join(project(t).Services["valkey"].Command, " ")
	for _, want := range []string{"--appendonly yes", "--maxmemory-policy noeviction", "--requirepass"} {
		if !strings.Contains(command, want) {
			t.Errorf("valkey is started without %s: %s", want, command)
		}
	}
}

func TestOnlyWhatPeopleOpenIsReachableAndOnlyFromThisMachine(t *testing.T) {
	t.Parallel()
	open := []string{"proxy", "prometheus", "grafana"}
	for name, s := range whole(t).Services {
		for _, port := range s.Ports {
			if !slices.Contains(open, name) || port.HostIP != "127.0.0.1" {
				t.Errorf("%s is published at %s:%s", name, port.HostIP, port.Published)
			}
		}
	}
}

func TestTheProxyWaitsForEveryNodeAndKnowsEachOne(t *testing.T) {
	t.Parallel()
	p := project(t)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes(p) {
		if got := p.Services["proxy"].DependsOn[n.Name].Condition; got != types.ServiceConditionHealthy {
			t.Errorf("the proxy starts when %s is %q, want %q", n.Name, got, types.ServiceConditionHealthy)
		}
		if !strings.Contains(string(text), n.Name+":8080") {
			t.Errorf("deploy/nginx.conf does not know %s", n.Name)
		}
	}
}

// The services of monitoring start only with their profile.
func TestMonitoringIsAProfile(t *testing.T) {
	t.Parallel()
	without, with := project(t), whole(t)
	for _, name := range []string{"prometheus", "grafana"} {
		if _, there := without.Services[name]; there {
			t.Errorf("%s is started with the nodes", name)
		}
		if _, there := with.Services[name]; !there {
			t.Errorf("the profile lacks %s", name)
		}
	}
}

// Grafana's first account is admin with the password admin. It must not be
// created, and the sign-in form must be off.
func TestGrafanaHasNoAccounts(t *testing.T) {
	t.Parallel()
	environment := whole(t).Services["grafana"].Environment
	for name, want := range map[string]string{
		"GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true", "GF_AUTH_BASIC_ENABLED": "false", "GF_AUTH_DISABLE_LOGIN_FORM": "true",
		"GF_AUTH_ANONYMOUS_ENABLED": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
	} {
		if got := environment[name]; got == nil || *got != want {
			t.Errorf("%s is not %s", name, want)
		}
	}
}

func TestPrometheusScrapesEveryNode(t *testing.T) {
	t.Parallel()
	p := whole(t)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana", "provisioning", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes(p) {
		if !strings.Contains(string(text), `"`+n.Name+`:9464"`) {
			t.Errorf("%s is not scraped", n.Name)
		}
	}
	for _, v := range p.Services["prometheus"].Volumes {
		if v.Type == types.VolumeTypeBind && !strings.Contains(string(text)+"/etc/prometheus/prometheus.yml", v.Target) {
			t.Errorf("%s is mounted and not named in the configuration", v.Target)
		}
	}
}

// Grafana finds the dashboard where its configuration looks, and Prometheus
// where it is.
func TestGrafanaIsProvisioned(t *testing.T) {
	t.Parallel()
	targets := map[string]string{} // by name of the file
	for _, v := range whole(t).Services["grafana"].Volumes {
		targets[filepath.Base(v.Source)] = v.Target
	}
	for file, want := range map[string]string{
		"dashboards.yaml": "path: " + filepath.Dir(targets["headgate-dashboard.json"]),
		"datasource.yaml": "url: http://prometheus:9090",
	} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana", "provisioning", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) || targets[file] == "" {
			t.Errorf("%s is not mounted, or lacks %q", file, want)
		}
	}
}

// Every file that the compose file mounts has to be there, or the engine makes
// an empty folder of that name.
func TestMountedFilesExist(t *testing.T) {
	t.Parallel()
	for name, s := range whole(t).Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if info, err := os.Stat(v.Source); err != nil || !info.Mode().IsRegular() {
				t.Errorf("%s mounts %s: %v", name, v.Source, err)
			}
		}
	}
}

func TestTheImageIsSmallUnprivilegedAndWatched(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"BUILD_IMAGE=golang:1.26", "FROM ${BUILD_IMAGE} AS build", "CGO_ENABLED=0",
		"RUN_IMAGE=gcr.io/distroless/static-debian12:nonroot", "FROM ${RUN_IMAGE}\n", "USER 65532:65532",
		"HEADGATE_ADDR=0.0.0.0:8080", "HEADGATE_DATABASE_URL=sqlite:///data/headgate.db",
		"--chown=65532:65532 /empty /data", "deploy/sbom run . /headgate", "COPY --from=build /sbom.cdx.json /licenses/", `VOLUME ["/data"]`, `CMD ["/headgate", "healthcheck"]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Dockerfile lacks %s", want)
		}
	}
}

// The images on which Headgate is built are named by their digests.
func TestBaseImagesAreNamedByDigest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	images := regexp.MustCompile(`(?m)^ARG [A-Z]+_IMAGE=(\S+)$`).FindAllStringSubmatch(string(text), -1)
	for _, image := range images {
		if !regexp.MustCompile(`^\S+:\S+@sha256:[0-9a-f]{64}$`).MatchString(image[1]) {
			t.Errorf("the base image %s has no tag or no digest", image[1])
		}
	}
	if len(images) != 2 {
		t.Errorf("%d base images were read, want 2", len(images))
	}
}

// The build context is a list of what is let in, so a new package has to be
// added to it. Without it, only a build of the image would fail, which no test runs.
func TestTheBuildContextHoldsEveryPackage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	// Their packages are for tests, or modules of their own.
	outside := []string{"servertest", "tools", "deploy", "docs", "bin", "data", "sdk"}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || slices.Contains(outside, e.Name()) || !holdsGo(t, filepath.Join(root, e.Name())) {
			continue
		}
		if !slices.Contains(lines, "!"+e.Name()+"/") {
			t.Errorf(".dockerignore keeps %s/ out of the build", e.Name())
		}
	}
}

func holdsGo(t *testing.T, dir string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			found = true
			return filepath.SkipAll
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we look
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
