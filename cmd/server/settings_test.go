package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Every invalid setting is reported by name before anything is opened.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	for setting, value := range map[string]string{
		"HEADGATE_ADDR":               "nowhere",
		"HEADGATE_METRICS_ADDR":       "9090",
		"HEADGATE_DATABASE_URL":       "mysql://host/db",
		"HEADGATE_REDIS_URL":          "http://127.0.0.1",
		"HEADGATE_REDIS_PREFIX":       "a{b}",
		"HEADGATE_NODES":              "-1",
		"HEADGATE_LIMITER_TIMEOUT":    "50",
		"HEADGATE_HEADERS":            "draft-99",
		"HEADGATE_PUBLIC_URL":         "limits.example.com",
		"HEADGATE_TRUSTED_PROXIES":    "10.0.0.0/99",
		"HEADGATE_METRICS_TENANTS":    "acme,Globex",
		"HEADGATE_RETENTION_MINUTES":  "10m",
		"HEADGATE_RETENTION_HOURS":    "0d",
		"HEADGATE_RETENTION_DAYS":     "30d",
		"HEADGATE_TLS_CERT_FILE":      "cert.pem",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
		"HEADGATE_SHUTDOWN_TIMEOUT":   "soon",
		"HEADGATE_SHUTDOWN_DELAY":     "1h",
		"HEADGATE_LOG_LEVEL":          "loud",
		"HEADGATE_LOG_FORMAT":         "xml",
		"HEADGATE_ADMIN_EMAIL":        "ann@example.com",
		"HEADGATE_OIDC_ISSUER":        "https://id.example.com",
		"HEADGATE_BOOTSTRAP_KEY":      "short",
		"HEADGATE_SAMPLE":             "perhaps",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			environment := map[string]string{"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_DATABASE_URL": sqliteIn(folder)}
			environment[setting] = value
			var out, logs bytes.Buffer
			p := program{getenv: func(name string) string { return environment[name] }, stdin: strings.NewReader(""), stdout: &out, stderr: &logs}
			err := p.run(t.Context(), []string{"serve"})
			if err == nil {
				t.Fatal("was accepted")
			}
			names := []string{setting}
			if setting == "HEADGATE_TLS_CERT_FILE" {
				names = []string{"HEADGATE_TLS_KEY_FILE"}
			}
			for _, name := range names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("the error does not name %s: %v", name, err)
				}
			}
			if left, _ := os.ReadDir(folder); len(left) > 0 {
				t.Errorf("a wrong setting left %v behind", left)
			}
		})
	}
}

// Invalid combinations of settings are reported together.
func TestWrongProvider(t *testing.T) {
	t.Parallel()
	for want, settings := range map[string]serveSettings{
		"both or none":        {OIDCIssuer: "https://id.example.com"},
		"HEADGATE_PUBLIC_URL": {OIDCIssuer: "https://id.example.com", OIDCClientID: "headgate"},
		"issuer":              {OIDCIssuer: "id.example.com", OIDCClientID: "headgate", PublicURL: "https://limits.example.com"},
	} {
		if err := settings.validProvider(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

// Settings of the mail server that do not fit together.
func TestWrongMailServer(t *testing.T) {
	t.Parallel()
	for want, settings := range map[string]serveSettings{
		"HEADGATE_SMTP_FROM":  {SMTPAddr: "smtp.example.com:587"},
		"set it, or none":     {SMTPFrom: "limits@example.com"},
		"both or none":        {SMTPAddr: "smtp.example.com:25", SMTPFrom: "limits@example.com", SMTPUser: "u", PublicURL: "https://limits.example.com"},
		"without TLS":         {SMTPAddr: "smtp.example.com:25", SMTPFrom: "limits@example.com", SMTPTLS: "none", SMTPUser: "u", SMTPPassword: "p", PublicURL: "https://limits.example.com"},
		"HEADGATE_PUBLIC_URL": {SMTPAddr: "smtp.example.com:587", SMTPFrom: "limits@example.com"},
		"port":                {SMTPAddr: "smtp.example.com", SMTPFrom: "limits@example.com", PublicURL: "https://limits.example.com"},
	} {
		if err := settings.validMail(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

// Settings that are found invalid only when something opens end the process before the
// first start creates keys, which would otherwise never be shown.
func TestWrongSettingsThatOnlyOpeningShows(t *testing.T) {
	t.Parallel()
	busy := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	taken := strings.TrimPrefix(busy.origin, "http://")
	missing := t.TempDir() + "/missing.pem"
	for name, settings := range map[string]map[string]string{
		"HEADGATE_ADDR":          {"HEADGATE_ADDR": taken},
		"HEADGATE_METRICS_ADDR":  {"HEADGATE_METRICS_ADDR": taken},
		"HEADGATE_TLS_CERT_FILE": {"HEADGATE_TLS_CERT_FILE": missing, "HEADGATE_TLS_KEY_FILE": missing},
		"HEADGATE_REDIS_URL":     {"HEADGATE_REDIS_URL": "redis://user:a-password@127.0.0.1:none"},
		"HEADGATE_DATABASE_URL":  {"HEADGATE_DATABASE_URL": "postgres://user:a-password@127.0.0.1:none/x", "HEADGATE_SHUTDOWN_TIMEOUT": "10m", "HEADGATE_SHUTDOWN_DELAY": "10m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			environment := map[string]string{"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_DATABASE_URL": sqliteIn(folder)}
			for setting, value := range settings {
				environment[setting] = value
			}
			var out, logs bytes.Buffer
			p := program{getenv: func(name string) string { return environment[name] }, stdin: strings.NewReader(""), stdout: &out, stderr: &logs}
			err := p.run(t.Context(), []string{"serve"})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("the error does not name %s: %v", name, err)
			}
			if text := fmt.Sprint(err, out.String(), logs.String()); strings.Contains(text, "a-password") {
				t.Errorf("a password is shown:\n%s", text)
			}
			if left, _ := os.ReadDir(folder); len(left) > 0 {
				t.Errorf("a wrong setting left %v behind", left)
			}
		})
	}
}

// What only one call of a command means does not come from the environment.
func TestFlagsThatAreNoSettings(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_YES": "true", "HEADGATE_NAME": "from outside", "HEADGATE_EXPIRES": "1h",
	}
	for _, args := range [][]string{
		{"migrate", "down", "1"},
		{"key", "create"},
		{"key", "create", "--name", "x", "--expires=-5m"},
		{"key", "create", "--name", "x", "--scopes", "all"},
		{"key", "create", "--name", "x", "--max-cost=-1"},
		{"key", "create", "--name", "x", "--max-cost=0"},
		{"key", "create", "--name", "x", "--max-cost=2147483648"},
	} {
		var out bytes.Buffer
		p := program{getenv: func(name string) string { return environment[name] }, stdin: strings.NewReader(""), stdout: &out, stderr: &out}
		err := p.run(t.Context(), args)
		if err == nil || !errors.As(err, new(usageError)) {
			t.Errorf("headgate %s: %v, want an error of usage\n%s", strings.Join(args, " "), err, out.String())
			continue
		}
		if strings.Contains(err.Error(), "HEADGATE_") {
			t.Errorf("headgate %s names a variable that is none: %v", strings.Join(args, " "), err)
		}
	}
}

// A flag wins over the environment.
func TestFlagWins(t *testing.T) {
	t.Parallel()
	environment := map[string]string{"HEADGATE_DATABASE_URL": "mysql://from/environment"}
	var out bytes.Buffer
	p := program{getenv: func(name string) string { return environment[name] }, stdin: strings.NewReader(""), stdout: &out, stderr: &out}
	if err := p.run(t.Context(), []string{"migrate", "status", "--database-url", sqliteIn(t.TempDir())}); err != nil {
		t.Error(err)
	}
}

func TestSecretInArgumentsIsNotOffered(t *testing.T) {
	t.Parallel()
	if help := helpOf(t, "serve"); strings.Contains(help, "--bootstrap-key") {
		t.Error("--help offers the bootstrap key as a flag")
	}
}

func helpOf(t *testing.T, command ...string) string {
	t.Helper()
	var out bytes.Buffer
	p := program{getenv: func(string) string { return "" }, stdin: strings.NewReader(""), stdout: &out, stderr: &out}
	if err := p.run(t.Context(), append(command, "--help")); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// --help lists every setting under its environment name.
func TestHelpNamesEverySetting(t *testing.T) {
	t.Parallel()
	help := helpOf(t, "serve")
	for _, setting := range []string{
		"ADDR", "DATABASE_URL", "REDIS_URL", "REDIS_PREFIX", "BOOTSTRAP_KEY", "PUBLIC_URL", "TRUSTED_PROXIES", "TLS_CERT_FILE", "TLS_KEY_FILE",
		"LIMITER_TIMEOUT", "NODES", "HEADERS", "METRICS_ADDR", "SHUTDOWN_TIMEOUT", "SHUTDOWN_DELAY", "LOG_LEVEL", "LOG_FORMAT", "SAMPLE",
	} {
		if !strings.Contains(strings.Join(strings.Fields(help), " "), "HEADGATE_"+setting) {
			t.Errorf("--help does not name HEADGATE_%s", setting)
		}
	}
	if top := helpOf(t); !strings.Contains(top, "simulate") || !strings.Contains(top, "migrate") {
		t.Errorf("--help lacks commands:\n%s", top)
	}
}
