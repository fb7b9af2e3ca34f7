package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const systemdFolder = "../../deploy/systemd/"

func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile(systemdFolder + "headgate.service")
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindSubmatch(unit)
		if found == nil {
			t.Fatalf("the unit has no %s", name)
		}
		return string(found[1])
	}
	files, err := strconv.Atoi(value("LimitNOFILE"))
	if err != nil {
		t.Fatal(err)
	}
	var defaults serveCommand
	defaults.MaxConnections, defaults.ShutdownTimeout = 10_000, 10*time.Second // docs/settings.md
	if limits := defaults.connectionLimits(files); limits.Total < defaults.MaxConnections {
		t.Errorf("with LimitNOFILE=%d there are %d connections", files, limits.Total)
	}
	if stop, err := time.ParseDuration(value("TimeoutStopSec")); err != nil || stop <= 2*defaults.ShutdownTimeout {
		t.Errorf("TimeoutStopSec is %s: %v", stop, err)
	}
	if page, err := os.ReadFile("../../docs/production.md"); err != nil || !strings.Contains(string(page), "`LimitNOFILE="+value("LimitNOFILE")+"`") {
		t.Errorf("docs/production.md does not have LimitNOFILE=%d: %v", files, err)
	}

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed, so the unit is not verified")
	}
	// verify needs a program that exists.
	copied := filepath.Join(t.TempDir(), "headgate.service")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(string(unit), "/usr/local/bin/headgate", program)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", copied).CombinedOutput(); err != nil || strings.Contains(string(out), copied) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The program knows each setting of the example, also those in comments, and accepts the values.
func TestSystemdSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(systemdFolder + "headgate.env")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#?([A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		settings[m[1]] = m[2]
	}
	if len(settings) < 8 {
		t.Fatalf("the example has %d settings", len(settings))
	}
	if !strings.HasPrefix(settings["HEADGATE_SNAPSHOT_FILE"], "/var/lib/headgate/") {
		t.Error("the snapshot is not in the StateDirectory")
	}
	// Nothing listens there, so that doctor does not wait.
	settings["HEADGATE_DATABASE_URL"] = strings.Replace(settings["HEADGATE_DATABASE_URL"], "@127.0.0.1/", "@127.0.0.1:1/", 1)
	settings["HEADGATE_REDIS_URL"] = strings.Replace(settings["HEADGATE_REDIS_URL"], ":6379", ":1", 1)
	settings["HEADGATE_PUBLIC_URL"] = "https://127.0.0.1:1"
	found, _ := examine(t, settings)
	expect(t, found, "settings", statusOK, "valid")
	expect(t, found, "trusted-proxies", statusOK, "1 network: 127.0.0.1/32")
}
