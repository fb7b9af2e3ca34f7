package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/internal/cli"
)

// otherVariables are names with the prefix that no command reads: those of the examples in the
// documents, of docker-compose.yml, and of the Makefile.
var otherVariables = []string{
	"HEADGATE_KEY", "HEADGATE_POSTGRES_PASSWORD", "HEADGATE_REDIS_PASSWORD", "HEADGATE_VERSION", "HEADGATE_FAULTS_PAGE",
	"HEADGATE_SCREENSHOTS",
}

// Kubernetes sets variables with the address of each service in the environment of every pod.
// For a service named headgate, they have the prefix of the settings.
var serviceVariable = regexp.MustCompile(`^HEADGATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$`)

// testVariable matches the names that only tests read.
var testVariable = regexp.MustCompile(`^HEADGATE_(TEST|FUZZ|STORE_TEST)_`)

// unknownSettings returns an error that names the variables with the prefix of the settings
// that no command reads. Without it, a misspelt setting would silently have its default.
func unknownSettings(model *kong.Application, environ func() []string) error {
	if environ == nil {
		return nil
	}
	known := settingNames(model)
	var unknown []string
	for _, variable := range environ() {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case !strings.HasPrefix(name, environmentPrefix), value == "", slices.Contains(known, name), testVariable.MatchString(name):
		case serviceVariable.MatchString(name) &&
			(!strings.HasSuffix(name, "_PORT") || strings.HasSuffix(name, "_SERVICE_PORT") || strings.Contains(value, "://")):
		default:
			unknown = append(unknown, fmt.Sprintf("%s: no setting has this name%s", name, cli.DidYouMean(name, known)))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("%s", strings.Join(unknown, "\n"))
}

// settingNames returns the sorted names of all environment variables that a command reads.
func settingNames(model *kong.Application) []string {
	names := map[string]bool{cli.TokenSetting: true}
	for _, secret := range []string{bootstrapSetting, adminPasswordSetting, oidcSecretSetting, benchKeySetting} {
		names[secret], names[secret+"_FILE"] = true, true
	}
	for _, name := range otherVariables {
		names[name] = true
	}
	for _, command := range model.Leaves(false) {
		for _, f := range command.Flags {
			if isSetting(f) {
				names[settingName(f.Name)] = true
				if f.Tag.Get("secret") == "true" {
					names[settingName(f.Name)+"_FILE"] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
