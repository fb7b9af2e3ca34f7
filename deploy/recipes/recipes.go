// Package recipes writes the recipes of deploy/ with other addresses, so that tests and benchmarks can run them. It is a
// separate Go module without dependencies, because the modules deploy/proxytest and cmd/bench-peers share it.
package recipes

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A Recipe is a configuration of deploy/ for a gateway, and the program that runs it.
type Recipe struct {
	Name   string
	File   string   // in deploy/
	Beside []string // names of further files in the same folder that the recipe needs
	// Edits are pairs of texts that Write replaces in these files, besides the addresses and the key.
	Edits []string
	// Command returns the command that runs the recipe in the foreground, as one process. file is the path of the
	// recipe.
	Command func(file string) []string
	GRPC    bool // it calls the gRPC services of Envoy
	// Check matches the part of the recipe with which the gateway sends checks to Headgate. The text that its group
	// "stays" matches does not belong to this part.
	Check *regexp.Regexp
	// Loads is set if the gateway listens before it has loaded its routes. Until then, it answers 404.
	Loads bool
}

// Addresses has the addresses and the API key that Write puts into a recipe.
type Addresses struct {
	Headgate string // of the gRPC services if the recipe calls these
	Upstream string
	Gateway  string
	Inner    string // an address where the gateway calls itself; only some recipes have one
	Key      string // an API key
}

// filterOf returns the field Check for a recipe of Envoy: it matches one HTTP filter. Its group "stays" matches the
// start of the last filter, which is not removed.
func filterOf(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)- name: envoy\.filters\.http\.` + name + `\n.*(?P<stays>- name: envoy\.filters\.http\.router)`)
}

// All has all recipes.
var All = []Recipe{
	{
		Name: "nginx", File: "nginx/forward-auth.conf",
		Edits: []string{
			"pid nginx.pid;", "daemon off; master_process off; pid nginx.pid;",
			"access_log off;", "access_log off; client_body_temp_path body; proxy_temp_path proxy;",
		},
		Command: func(file string) []string {
			return []string{"nginx", "-p", filepath.Dir(file), "-e", "stderr", "-c", file}
		},
		Check: regexp.MustCompile(`auth_request /headgate;`),
	},
	{
		Name: "Caddy", File: "caddy/Caddyfile",
		Command: func(file string) []string {
			return []string{"caddy", "run", "--config", file, "--adapter", "caddyfile"}
		},
		Check: regexp.MustCompile(`(?s)\treverse_proxy 127\.0\.0\.1:8080 \{.*\n\t\}\n`),
	},
	{
		Name: "Apache", File: "apache/forward-auth.conf", Beside: []string{"headgate.lua"},
		Edits: []string{"/etc/headgate/headgate.lua", "headgate.lua"},
		Command: func(file string) []string {
			return []string{"apache2", "-X", "-d", filepath.Dir(file), "-f", file}
		},
		Check: regexp.MustCompile(`LuaHookAccessChecker .*`),
	},
	{
		Name: "HAProxy", File: "haproxy/haproxy.cfg", Beside: []string{"headgate.lua"},
		Command: func(file string) []string { return []string{"haproxy", "-db", "-f", file} },
		Edits:   []string{"abns@headgate", "unix@headgate.sock"}, // others run at the same time
		Check:   regexp.MustCompile(`http-request lua\.headgate`),
	},
	{
		Name: "Traefik", File: "traefik/forward-auth.yaml", Beside: []string{"traefik.yaml"},
		Command: func(file string) []string {
			return []string{"traefik", "--configFile=" + filepath.Join(filepath.Dir(file), "traefik.yaml")}
		},
		Check: regexp.MustCompile(`middlewares: \[headgate\]`),
		Loads: true,
	},
	{
		Name: "Envoy", File: "envoy/envoy.yaml", Command: envoy,
		Check: filterOf("ext_authz"),
	},
	{
		Name: "Envoy ext_authz", File: "envoy/ext-authz.yaml", GRPC: true, Command: envoy,
		Check: filterOf("ext_authz"),
	},
	{
		Name: "Envoy ratelimit", File: "envoy/ratelimit.yaml", GRPC: true, Command: envoy,
		Check: filterOf("ratelimit"),
	},
	{
		Name: "Envoy rate_limit_quota", File: "envoy/rate-limit-quota.yaml", GRPC: true, Command: envoy,
		Check: filterOf("rate_limit_quota"),
	},
}

func envoy(file string) []string {
	return []string{"envoy", "-c", file, "--disable-hot-restart", "--concurrency", "1", "--log-level", "error"}
}

// Named returns the recipe in All with this name. It panics if there is none.
func Named(name string) Recipe {
	for _, r := range All {
		if r.Name == name {
			return r
		}
	}
	panic("no recipe " + name)
}

// Files returns the names of the files of the recipe in their folder, the recipe itself first.
func (r Recipe) Files() []string { return append([]string{filepath.Base(r.File)}, r.Beside...) }

// Write writes the files of the recipe to a folder, with the edits and the addresses, and returns the path of the recipe.
// deploy is the path of the folder deploy/. edits are pairs of texts that are replaced first. If bare is true, the
// gateway does not ask Headgate.
func (r Recipe) Write(deploy, folder string, a Addresses, bare bool, edits ...string) (file string, err error) {
	t := texts{}
	for _, name := range r.Files() {
		text, err := os.ReadFile(filepath.Join(deploy, filepath.Dir(r.File), name))
		if err != nil {
			return "", err
		}
		t[name] = string(text)
	}
	if bare {
		if err := t.cut(r.Check); err != nil {
			return "", fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	port := "8080"
	if r.GRPC {
		port = "8081"
	}
	// The edits come before the addresses, which they can contain.
	if err := t.replace(edits); err != nil {
		return "", fmt.Errorf("%s: %w", r.Name, err)
	}
	for _, pair := range [][2]string{{port, a.Headgate}, {"9000", a.Upstream}, {"8000", a.Gateway}, {"8001", a.Inner}} {
		if err := t.address(pair[0], pair[1]); err != nil && pair[0] != "8001" && !bare {
			return "", fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	if err := t.replace(append([]string{"HEADGATE_KEY", a.Key}, r.Edits...)); err != nil && !bare {
		return "", fmt.Errorf("%s: %w", r.Name, err)
	}
	for name, text := range t {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil { //nolint:gosec // Apache reads it as another user
			return "", err
		}
	}
	return filepath.Join(folder, filepath.Base(r.File)), nil
}

// texts contains the texts of files by their names.
type texts map[string]string

func (t texts) contain(text string) bool {
	for _, s := range t {
		if strings.Contains(s, text) {
			return true
		}
	}
	return false
}

// replace replaces texts. pairs has old and new texts in turn. It returns an error if no file contains an old text.
func (t texts) replace(pairs []string) (err error) {
	for i := 0; i < len(pairs); i += 2 {
		if !t.contain(pairs[i]) {
			err = fmt.Errorf("the recipe has no %q", pairs[i])
		}
	}
	for name, text := range t {
		t[name] = strings.NewReplacer(pairs...).Replace(text)
	}
	return err
}

// address replaces a port on loopback by an address.
func (t texts) address(port, address string) error {
	if !t.contain(port) {
		return fmt.Errorf("the recipe has no port %s", port)
	}
	_, other, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	for name, text := range t {
		t[name] = strings.NewReplacer("127.0.0.1:"+port, address, "port_value: "+port, "port_value: "+other).Replace(text)
	}
	return nil
}

// cut removes what check matches, except its group "stays".
func (t texts) cut(check *regexp.Regexp) error {
	found := false
	for name, text := range t {
		found = found || check.MatchString(text)
		t[name] = check.ReplaceAllString(text, "${stays}")
	}
	if !found {
		return fmt.Errorf("the recipe has no %s", check)
	}
	return nil
}
