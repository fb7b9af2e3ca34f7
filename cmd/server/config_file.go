package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/cli"
)

// configSetting is the environment variable that names the file with settings.
const configSetting = environmentPrefix + "CONFIG"

// configPath returns the name of the file that --config or HEADGATE_CONFIG selects, or "".
func configPath(args []string, getenv func(string) string) string {
	for i, arg := range args {
		if path, ok := strings.CutPrefix(arg, "--config="); ok {
			return path
		}
		if arg == "--config" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return getenv(configSetting)
}

// withConfig returns a function like getenv. If an environment variable is not set, the function
// returns the value of the setting in the file at path. Flags have precedence over both.
func withConfig(getenv func(string) string, path string, model *kong.Application) (func(string) string, error) {
	if path == "" {
		return getenv, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config (%s): %w", configSetting, err)
	}
	settings, err := parseConfig(text, model)
	if err != nil {
		return nil, fmt.Errorf("--config (%s): %s: %w", configSetting, path, err)
	}
	return func(name string) string {
		if value := getenv(name); value != "" || name == configSetting {
			return value
		}
		if getenv(name+"_FILE") != "" {
			return "" // NAME_FILE is set, and has precedence over the file with settings
		}
		return settings[name]
	}, nil
}

// parseConfig parses a YAML file with settings of headgate serve. It returns a map from the names
// of environment variables to values. A name in the file is the name of a flag with underscores in
// place of hyphens.
func parseConfig(text []byte, model *kong.Application) (map[string]string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	settings := map[string]string{}
	if document.Kind == 0 {
		return settings, nil // the file is empty
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: must be a mapping of settings, such as log_level: debug", root.Line)
	}
	known := configKeys(model)
	var faults []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		name := environmentPrefix + strings.ToUpper(key.Value)
		_, twice := settings[name]
		text, ok := configValue(value)
		switch {
		case key.Value == "$schema":
			continue
		case !slices.Contains(known, key.Value):
			faults = append(faults, fmt.Errorf("line %d: no setting has the name %s%s", key.Line, key.Value, cli.DidYouMean(key.Value, known)))
		case twice:
			faults = append(faults, fmt.Errorf("line %d: %s is set twice", key.Line, key.Value))
		case !ok: // the error does not contain the value, which may be a secret
			faults = append(faults, fmt.Errorf("line %d: %s must be a text, a number, true, false, or a list of these", value.Line, key.Value))
		default:
			settings[name] = text
		}
	}
	return settings, errors.Join(faults...)
}

// configValue converts a YAML value to the text that an environment variable would have. It joins
// the elements of a list with commas. If the value is a mapping or contains one, it returns false.
func configValue(n *yaml.Node) (string, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", true
	case n.Kind == yaml.ScalarNode:
		return n.Value, true
	case n.Kind != yaml.SequenceNode:
		return "", false
	}
	var parts []string
	for _, element := range n.Content {
		if element.Kind != yaml.ScalarNode {
			return "", false
		}
		parts = append(parts, element.Value)
	}
	return strings.Join(parts, ","), true
}

// configKeys returns the sorted names of all settings that a file may have.
func configKeys(model *kong.Application) []string {
	var keys []string
	add := func(setting string, secret bool) {
		key := strings.ToLower(strings.TrimPrefix(setting, environmentPrefix))
		keys = append(keys, key)
		if secret {
			keys = append(keys, key+"_file")
		}
	}
	for _, command := range model.Leaves(false) {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			if isSetting(f) && settingName(f.Name) != configSetting {
				add(settingName(f.Name), f.Tag.Get("secret") == "true")
			}
		}
	}
	for _, secret := range secretSettings {
		add(secret, true)
	}
	slices.Sort(keys)
	return keys
}

// configHasSecrets reports whether a file with settings contains a setting that may be a secret.
func configHasSecrets(path string) bool {
	text, err := os.ReadFile(path)
	var settings map[string]yaml.Node
	if err != nil || yaml.Unmarshal(text, &settings) != nil {
		return false
	}
	for _, name := range readableSecrets {
		value, set := settings[strings.ToLower(strings.TrimPrefix(name, environmentPrefix))]
		if set && !strings.HasPrefix(value.Value, "sqlite:") {
			return true
		}
	}
	return false
}
