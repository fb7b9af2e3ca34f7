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

// otherVariables are environment variables that begin with HEADGATE_, but that no command reads.
// The examples in the documents, docker-compose.yml and the Makefile use them.
var otherVariables = []string{
	"HEADGATE_KEY", "HEADGATE_POSTGRES_PASSWORD", "HEADGATE_REDIS_PASSWORD", "HEADGATE_VERSION", "HEADGATE_FAULTS_PAGE",
	"HEADGATE_SCREENSHOTS",
}

// serviceVariable matches variables with the addresses of services, which Kubernetes sets in every
// pod. For a service with the name headgate, these variables begin with HEADGATE_, like settings.
var serviceVariable = regexp.MustCompile(`^HEADGATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$`)

// testVariable matches variables that only tests read.
var testVariable = regexp.MustCompile(`^HEADGATE_(TEST|FUZZ|STORE_TEST)_`)

// unknownSettings returns an error that names each variable which begins with HEADGATE_ but which
// no command reads. Without this error, a misspelled setting would be ignored silently.
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

// settingNames returns the sorted names of all environment variables that commands read.
func settingNames(model *kong.Application) []string {
	names := map[string]bool{cli.TokenSetting: true}
	for _, secret := range append(slices.Clone(secretSettings), benchKeySetting) {
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
