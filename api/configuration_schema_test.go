package api_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"go.yaml.in/yaml/v3"
)

// docs/configuration.schema.json is the schema Configuration of openapi.yaml with
// everything that it refers to, for editors. Files of a configuration are strict,
// and may name the schema. go test ./api -run ConfigurationSchema -update writes it.
func TestConfigurationSchema(t *testing.T) {
	t.Parallel()
	const path = "../docs/configuration.schema.json"
	var document struct {
		Components struct{ Schemas map[string]any }
	}
	must(t, yaml.Unmarshal(headgate.Spec, &document))
	schemas := document.Components.Schemas
	root := strict(schemas["Configuration"]).(map[string]any)
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "Headgate configuration"
	root["properties"].(map[string]any)["$schema"] = map[string]any{"type": "string", "description": "The address of this schema, for editors."}
	definitions := map[string]any{}
	for todo := references(root); len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if definitions[name] == nil {
			definitions[name] = strict(schemas[name])
			todo = append(todo, references(definitions[name])...)
		}
	}
	root["$defs"] = definitions
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	must(t, e.Encode(root))
	text := strings.ReplaceAll(b.String(), "#/components/schemas/", "#/$defs/")
	if *update {
		must(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	have, err := os.ReadFile(path)
	must(t, err)
	if string(have) != text {
		t.Errorf("%s is not what openapi.yaml says: go test ./api -run ConfigurationSchema -update", path)
	}
}

// strict returns a copy of a schema that allows no other members in its objects.
func strict(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for k := range out {
			out[k] = strict(out[k])
		}
		if _, open := out["additionalProperties"]; out["type"] == "object" && out["properties"] != nil && !open {
			out["additionalProperties"] = false
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = strict(out[i])
		}
		return out
	}
	return v
}

var reference = regexp.MustCompile(`#/components/schemas/(\w+)`)

// references returns the names of the schemas that a schema refers to.
func references(v any) []string {
	text, _ := json.Marshal(v)
	var names []string
	for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}
