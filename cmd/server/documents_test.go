package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the documents that tests compare again")

// settingsPage generates docs/settings.md from the flags of serve.
func settingsPage(t *testing.T) string {
	t.Helper()
	p := program{getenv: func(string) string { return "" }, stdin: strings.NewReader("")}
	parser, err := p.parser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString("# Settings\n\n" +
		"Of `headgate serve`, as `headgate serve --help` lists them. Each is an environment variable and a flag of the same name\n" +
		"(`HEADGATE_LOG_LEVEL`, `--log-level`); the flag wins, and an empty variable counts as not set. Where `_FILE` is named, that variable may\n" +
		"name a file with the value instead. A wrong value stops the start with an error that names the setting. So does a variable that begins\n" +
		"with `HEADGATE_` and is no setting.\n\n" +
		"| setting | default | meaning |\n|---|---|---|\n")
	row := func(setting string, secret bool, value, meaning string) {
		name := "`" + setting + "`"
		if secret {
			name += ", `" + setting + "_FILE`"
		}
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(meaning, "|", "\\|"))
	}
	for _, command := range parser.Model.Leaves(false) {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			if !isSetting(f) {
				t.Errorf("--%s of serve has no environment variable", f.Name)
			}
			value := f.Default
			if value == unset {
				value = ""
			}
			row(settingName(f.Name), f.Tag.Get("secret") == "true", value, f.Help)
		}
	}
	row(bootstrapSetting, true, "", "An operator key for automation: 32 to 128 characters of `A-Z a-z 0-9 . _ ~ + / = -`, good while no other operator key exists. "+
		"It has no flag, because the arguments of a process can be read by every user of the machine.")
	row(adminPasswordSetting, true, "", "Password of the first owner, 12 characters or more; goes with HEADGATE_ADMIN_EMAIL. No flag either.")
	row(oidcSecretSetting, true, "", "Headgate's secret at the OpenID provider; empty for a public client. No flag either.")
	row(smtpPasswordSetting, true, "", "Password at the mail server; goes with HEADGATE_SMTP_USER. No flag either.")
	row(secretsKeySetting, true, "", "Encrypts the secrets of authenticator apps in the database; 32 characters or more, the same on all nodes. Empty: they are stored unencrypted. No flag either.")
	row(secretsKeyOldSetting, true, "", "The former `HEADGATE_SECRETS_KEY`, which only decrypts, until `headgate secrets reencrypt` has run (docs/production.md, Key rotation). No flag either.")
	row(envoyKeySetting, true, "", "The API key of calls to the gRPC services of Envoy that send none, for clients that cannot send one. Use it with HEADGATE_ENVOY_CLIENT_CA_FILE or on a "+
		"private network, because every client of the port then has this key. Empty: such calls fail. No flag either.")
	for _, setting := range secretSettings {
		if !strings.Contains(page.String(), "`"+setting+"`") {
			t.Errorf("%s is not in docs/settings.md", setting)
		}
	}
	page.WriteString(strings.ReplaceAll(runtimeSettings+telemetrySettings, "¬", "`"))
	return page.String()
}

// runtimeSettings documents the environment variables of the Go runtime for which a node has
// its own defaults.
const runtimeSettings = `
## Go runtime

These variables are Go's own; they have no flag. The log says at the start what was set.

| setting | default | meaning |
|---|---|---|
| ¬GOGC¬ | ¬400¬ | How much the heap grows before it is collected, in percent of what is live. A node with 10 MB of live data takes about 70 MB; one with 200 MB takes up to 1 GB. 100 halves that, for about 7 µs of processor time a check without Redis. |
| ¬GOMEMLIMIT¬ | 90% of the cgroup's ¬memory.max¬; without one, none | The heap at which it is collected earlier than GOGC says. |
`

// telemetrySettings documents the environment variables of OpenTelemetry. The tests of package
// tracing check them.
const telemetrySettings = `
## OpenTelemetry

Tracing is off until an endpoint is set. These variables are OpenTelemetry's own; they have no flag.

| setting | default | meaning |
|---|---|---|
| ¬OTEL_EXPORTER_OTLP_ENDPOINT¬ |  | The collector for OTLP over HTTP, like http://collector:4318; spans go to /v1/traces below it. |
| ¬OTEL_EXPORTER_OTLP_TRACES_ENDPOINT¬ |  | The whole URL for spans; wins. |
| ¬OTEL_SERVICE_NAME¬ | ¬headgate¬ | Who sends the spans. |
| ¬OTEL_RESOURCE_ATTRIBUTES¬ |  | More about the sender: name=value,name=value. |
| ¬OTEL_TRACES_SAMPLER¬ | ¬parentbased_traceidratio¬ with 0.01 | always_on, always_off, traceidratio, or one of these with parentbased_ before it. |
| ¬OTEL_TRACES_SAMPLER_ARG¬ | ¬1¬ | The part of new traces that a sampler with traceidratio keeps, 0 to 1; used only when OTEL_TRACES_SAMPLER is set. |
| ¬OTEL_SDK_DISABLED¬, ¬OTEL_TRACES_EXPORTER¬ |  | true, or none: off in spite of an endpoint. |

Headers, certificates, compression and time-outs of OTEL_EXPORTER_OTLP_… and OTEL_BSP_… work as OpenTelemetry has them; the queue's length is fixed.
`

// docs/settings.md documents every setting correctly. go test ./cmd/server -run Settings
// -update writes the page.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	const path = "../../docs/settings.md"
	want := settingsPage(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/settings.md is not what the flags say (-flags +page; -update writes it):\n%s", diff)
	}
}

// snippet returns the first code block with a language in a document.
func snippet(t *testing.T, path, language, having string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], having) {
			return strings.TrimSpace(block[1])
		}
	}
	t.Fatalf("%s has no %s block with %q", path, language, having)
	return ""
}

// README.md shows the curl command that make run prints, except for the API key.
func checkREADMECall(t *testing.T, printed, origin, key string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(strings.NewReplacer(origin, "http://127.0.0.1:8080", key, "$HEADGATE_TOKEN").Replace(printed)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	shown := strings.Split(snippet(t, "../../README.md", "sh", "curl -i"), "\n")
	for i := range shown {
		shown[i] = strings.TrimSpace(shown[i])
	}
	if diff := cmp.Diff(shown, lines); diff != "" {
		t.Errorf("README.md's curl is not the one that is printed (-README +printed):\n%s", diff)
	}
}

var (
	seconds      = regexp.MustCompile(`(Retry-After: |;t=)[0-9]+`)
	milliseconds = regexp.MustCompile(`("(?:reset_after|retry_after)_ms": ?)[1-9][0-9]*`)
	decisionID   = regexp.MustCompile(`("(?:decision|request)_id": ?)"[0-9a-f-]{36}"`)
)

// README.md shows the complete response to a denied check, except for the time and the ID.
func checkREADMERefusal(t *testing.T, answered string) {
	t.Helper()
	read := func(text string) (status string, headers map[string]bool, body any) {
		text = strings.ReplaceAll(text, "\r\n", "\n")
		text = decisionID.ReplaceAllString(milliseconds.ReplaceAllString(seconds.ReplaceAllString(text, "${1}0"), "${1}0"), `$1"id"`)
		head, rest, _ := strings.Cut(text, "\n\n")
		lines := strings.Split(head, "\n")
		headers = map[string]bool{}
		for _, line := range lines[1:] {
			headers[line] = true
		}
		if err := json.Unmarshal([]byte(rest), &body); err != nil {
			t.Fatalf("the body is not JSON: %v\n%s", err, rest)
		}
		return lines[0], headers, body
	}
	status, headers, body := read(answered)
	shownStatus, shownHeaders, shownBody := read(snippet(t, "../../README.md", "http", "429"))
	if shownStatus != status {
		t.Errorf("README.md shows %q, the answer is %q", shownStatus, status)
	}
	for line := range shownHeaders {
		if !headers[line] {
			t.Errorf("README.md shows the header %q, the answer has %v", line, headers)
		}
	}
	for line := range headers {
		name, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "R") && !shownHeaders[line] {
			t.Errorf("README.md does not show the header %q", line)
		}
	}
	if diff := cmp.Diff(shownBody, body); diff != "" {
		t.Errorf("README.md's refusal is not what is answered (-README +answer):\n%s", diff)
	}
}

// The pages from which an operator comes to a grant lead to docs/grants.md.
func TestPagesLinkGrants(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"exceptions.md", "dashboard.md", "refunds.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "](grants.md)") {
			t.Errorf("docs/%s has no link to grants.md", page)
		}
	}
}
