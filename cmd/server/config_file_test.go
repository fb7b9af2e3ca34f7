package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/cli"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A node uses the settings in a configuration file. Environment variables override the file,
// and flags override both.
func TestServeWithConfig(t *testing.T) {
	t.Parallel()
	path := configFile(t, "$schema: https://limits.example.com/docs/settings.schema.json\ndatabase_url: "+sqliteIn(t.TempDir())+
		"\nbootstrap_key: "+bootstrap+"\nsample: false\nheaders: [draft-06, x-ratelimit]\nallowed_hosts: [nowhere.example.com]\n")
	node := start(t, map[string]string{"HEADGATE_CONFIG": path, "HEADGATE_ALLOWED_HOSTS": "127.0.0.1"})
	call(t, bootstrap, "PUT", node.origin+"/v1/tenants/none", "{}").want(t, 428)
	if a := call(t, bootstrap, "GET", node.origin+"/v1/tenants", ""); a.status != 200 || strings.Contains(a.body, "demo") {
		t.Errorf("%d %s", a.status, a.body)
	}
	plain := configFile(t, "database_url: sqlite:///nonexistent/x.db\n")
	folder := sqliteIn(t.TempDir())
	must(t, nil, "migrate", "status", "--config", plain, "--database-url", folder)
	must(t, map[string]string{"HEADGATE_DATABASE_URL": folder}, "migrate", "status", "--config="+plain)
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"log_levl: info\n":                     `line 1: no setting has the name log_levl, did you mean "log_level"?`,
		"addr: ':1'\nredsi_url: x\n":           "line 2: no setting has the name redsi_url",
		"addr: ':1'\naddr: ':2'\n":             "line 2: addr is set twice",
		"redis_url: {password: secret-word}\n": "line 1: redis_url must be a text",
		"- addr\n":                             "line 1: must be a mapping",
		"a: [\n":                               "line",
		"log_level: loud\n":                    "--log-level",
		"config: other.yaml\n":                 "no setting has the name config",
		"nodes: -1\n":                          "HEADGATE_NODES",
	} {
		_, err := command(t, nil, "", "serve", "--config", configFile(t, text))
		if exitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := command(t, nil, "", "serve", "--config", "none.yaml"); exitCode(err) != cli.ExitUsage {
		t.Errorf("no file: %v", err)
	}
	path := configFile(t, "redis_url: redis://:secret@localhost\n")
	if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // the fault
		t.Fatal(err)
	}
	found, _ := examine(t, map[string]string{"HEADGATE_CONFIG": path, "HEADGATE_REDIS_URL": "redis://127.0.0.1:1", "HEADGATE_ADDR": "127.0.0.1:0"})
	expect(t, found, "secrets", statusError, path)
}

// docs/settings.schema.json has every setting that a file may have, and no other one.
// go test ./cmd/server -run SettingsSchema -update writes it.
func TestSettingsSchema(t *testing.T) {
	t.Parallel()
	parser, err := program{getenv: func(string) string { return "" }}.parser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	properties := map[string]any{"$schema": map[string]any{"type": "string", "description": "The address of this schema, for editors."}}
	for _, key := range configKeys(parser.Model) {
		properties[key] = map[string]any{
			"type": "string", "description": "A secret. Other users must not be able to read the file.",
		}
		if strings.HasSuffix(key, "_file") {
			properties[key] = map[string]any{"type": "string", "description": "File with the value of " + strings.TrimSuffix(key, "_file") + "."}
		}
	}
	for _, command := range parser.Model.Leaves(false) {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			key := strings.ReplaceAll(f.Name, "-", "_")
			if _, ok := properties[key]; !ok {
				continue
			}
			schema := map[string]any{"type": []string{"string", "null"}, "description": f.Help}
			switch {
			case f.IsBool():
				schema["type"] = []string{"boolean", "null"}
			case f.Enum != "":
				schema = map[string]any{"enum": f.EnumSlice(), "description": f.Help}
				if slices.Contains(f.EnumSlice(), "true") {
					schema["enum"] = []any{"auto", "true", "false", true, false}
				}
			case f.Target.CanInt() && f.Target.Type().PkgPath() == "":
				schema["type"] = []string{"integer", "null"}
			case strings.Contains(f.PlaceHolder, ",..."):
				schema["type"], schema["items"] = []string{"string", "array", "null"}, map[string]any{"type": "string"}
			}
			if f.Default != "" && f.Default != unset {
				schema["description"] = f.Help + " Default: " + f.Default + "."
			}
			properties[key] = schema
		}
	}
	text, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Settings of headgate serve", "type": "object",
		"description": "The file of headgate serve --config.", "additionalProperties": false, "properties": properties,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../../docs/settings.schema.json", string(text)+"\n")
}
