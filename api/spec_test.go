package api_test

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/problem"
)

func TestSpecIsValid(t *testing.T) {
	t.Parallel()
	doc := published()
	must(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
}

// The route table equals the paths of openapi.yaml. /docs belongs to package web.
func TestRoutesAreTheDocument(t *testing.T) {
	t.Parallel()
	doc, _ := contract()
	colons := regexp.MustCompile(`:([a-z]+)`)
	seen := map[string]bool{"GET /docs": true}
	for _, r := range api.New(api.Config{}).RouteTable() {
		path := colons.ReplaceAllString(r.Path, "{$1}")
		seen[r.Method+" "+path] = true
		item := doc.Paths.Value(path)
		if item == nil || item.GetOperation(r.Method) == nil {
			t.Errorf("%s %s is not in openapi.yaml", r.Method, path)
			continue
		}
		compareRoute(t, r, item.GetOperation(r.Method))
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !seen[method+" "+path] {
				t.Errorf("%s %s has no route", method, path)
			}
		}
	}
}

func compareRoute(t *testing.T, r api.RouteRow, op *openapi3.Operation) {
	t.Helper()
	if op.OperationID != r.Operation {
		t.Errorf("%s %s: %s, the table says %s", r.Method, r.Path, op.OperationID, r.Operation)
	}
	var scopes []string
	if op.Security != nil {
		for _, s := range *op.Security {
			scopes = append(scopes, s["bearer"]...)
		}
	}
	if strings.Join(scopes, " ") != r.Scope {
		t.Errorf("%s: scopes %v, the table says %q", r.Operation, scopes, r.Scope)
	}
	var callers []string
	for _, c := range op.Extensions["x-callers"].([]any) {
		callers = append(callers, c.(string))
	}
	if !slices.Equal(callers, r.Callers) {
		t.Errorf("%s: callers %v, the table says %v", r.Operation, callers, r.Callers)
	}
	var query []string
	ifMatch, idempotent := false, false
	for _, p := range op.Parameters {
		switch {
		case p.Value.In == "query":
			query = append(query, p.Value.Name)
		case p.Value.Name == "If-Match":
			ifMatch = p.Value.Required
		case p.Value.Name == "Idempotency-Key":
			idempotent = true
		}
	}
	if !slices.Equal(query, r.Query) {
		t.Errorf("%s: query %v, the table says %v", r.Operation, query, r.Query)
	}
	creates := r.Method == "POST" && (op.Responses.Value("201") != nil || op.Responses.Value("202") != nil)
	// The limiter stores the keys of these operations.
	decides := r.Operation == "check" || r.Operation == "checkBatch" || r.Operation == "reserve" || r.Operation == "refundCheck" ||
		r.Operation == "extendReservation"
	if idempotent != (r.Idempotent || decides) || idempotent != (creates || decides) {
		t.Errorf("%s: Idempotency-Key %v, the table says %v, creates an object: %v", r.Operation, idempotent, r.Idempotent, creates)
	}
	if ifMatch != r.IfMatch {
		t.Errorf("%s: If-Match %v, the table says %v", r.Operation, ifMatch, r.IfMatch)
	}
	if body := op.RequestBody; (body != nil) != r.Body || body != nil && body.Value.Required == r.BodyOptional {
		t.Errorf("%s: the table and the document differ about the body", r.Operation)
	}
}

// Rules for openapi.yaml that a schema cannot express.
func TestSpecKeepsHouseRules(t *testing.T) {
	t.Parallel()
	doc, _ := contract()
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			at := method + " " + path
			if op.OperationID == "" || op.Summary == "" || op.Description == "" || len(op.Tags) != 1 || op.Security == nil {
				t.Errorf("%s: lacks an operationId, summary, description, tag or security", at)
			}
			for _, p := range op.Parameters {
				if p.Value.Description == "" || p.Value.In == "path" && p.Value.Example == nil {
					t.Errorf("%s: parameter %s lacks a description or example", at, p.Value.Name)
				}
			}
			if op.RequestBody != nil && len(op.RequestBody.Value.Content["application/json"].Examples) == 0 {
				t.Errorf("%s: the request has no example", at)
			}
			for status, r := range op.Responses.Map() {
				checkResponse(t, at+" "+status, status, r.Value)
			}
			for _, status := range wanted(path, method, op) {
				if op.Responses.Value(status) == nil {
					t.Errorf("%s: has no %s", at, status)
				}
			}
		}
	}
	for name, s := range doc.Components.Schemas {
		if s.Value.Description == "" {
			t.Errorf("schema %s has no description", name)
		}
		for member, p := range s.Value.Properties {
			if p.Value.Description == "" {
				t.Errorf("schema %s: %s has no description", name, member)
			}
		}
		if page := s.Value; strings.HasSuffix(name, "Page") {
			slices.Sort(page.Required)
			if len(page.Properties) != 3 || page.Properties["next_cursor"] == nil || !slices.Equal(page.Required, []string{"data", "has_more"}) {
				t.Errorf("schema %s is not {data, has_more, next_cursor}", name)
			}
		}
	}
}

func checkResponse(t *testing.T, at, status string, r *openapi3.Response) {
	t.Helper()
	if r.Description == nil || *r.Description == "" {
		t.Errorf("%s: no description", at)
	}
	for media, content := range r.Content {
		if len(content.Examples) == 0 {
			t.Errorf("%s: no example", at)
		}
		if status >= "400" && media != "application/problem+json" && !strings.HasPrefix(at, "GET /readyz") {
			t.Errorf("%s: %s is no problem", at, media)
		}
	}
}

// wanted are the statuses that an operation must document.
func wanted(path, method string, op *openapi3.Operation) []string {
	if !strings.HasPrefix(path, "/v1/") {
		return nil
	}
	w := []string{"400", "401", "403", "500", "503"}
	if op.RequestBody != nil {
		w = append(w, "413", "415")
	}
	if strings.Contains(path, "{") {
		w = append(w, "404")
	}
	for _, p := range op.Parameters {
		if p.Value.Name == "If-Match" && p.Value.Required {
			w = append(w, "412", "428")
		}
	}
	if op.RequestBody != nil && slices.Contains([]string{"POST", "PUT", "PATCH"}, method) && strings.HasPrefix(path, "/v1/tenants/{tenant}/") {
		w = append(w, "409")
	}
	return w
}

// In examples, only a retry time, the plan of a tenant, and a member of a merge patch can be
// null.
func TestExamplesHaveNoNulls(t *testing.T) {
	t.Parallel()
	doc, _ := contract()
	text, err := json.Marshal(doc)
	must(t, err)
	for _, found := range regexp.MustCompile(`"([a-z_]+)":null`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains([]string{"retry_after_ms", "passes_at", "plan", "for"}, found[1]) {
			t.Errorf("%s is null", found[1])
		}
	}
	if regexp.MustCompile(`"nullable"`).Match(text) {
		t.Error("nullable is not of OpenAPI 3.1")
	}
}

// Examples have times with milliseconds, and durations that are numbers are in milliseconds.
func TestTimesAndDurations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../openapi.yaml")
	must(t, err)
	for _, found := range regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[^"\s]*`).FindAllString(string(text), -1) {
		if !regexp.MustCompile(`:\d\d\.\d{3}Z$`).MatchString(found) {
			t.Errorf("%s is not in UTC with milliseconds", found)
		}
	}
	doc, _ := contract()
	unit := regexp.MustCompile(`(?i)_(s|sec|secs|seconds|minutes|hours|days|us|micros|millis|ns)$`)
	for name, schema := range doc.Components.Schemas {
		eachProperty(schema.Value, func(property string, p *openapi3.Schema) {
			if unit.MatchString(property) {
				t.Errorf("%s.%s: a duration is in milliseconds and ends with _ms", name, property)
			}
			if strings.HasSuffix(property, "_ms") && !p.Type.Includes("integer") {
				t.Errorf("%s.%s is not an integer", name, property)
			}
			if p.Type.Includes("string") && p.Format != "date-time" && (strings.HasSuffix(property, "_at") || strings.HasSuffix(property, "_until")) {
				t.Errorf("%s.%s is a time without the format date-time", name, property)
			}
		})
	}
}

// eachProperty calls do for each property of a schema and of the schemas in it, but not of those that it refers to.
func eachProperty(s *openapi3.Schema, do func(name string, property *openapi3.Schema)) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		if p.Ref == "" {
			do(name, p.Value)
			eachProperty(p.Value, do)
		}
	}
	if s.Items != nil && s.Items.Ref == "" {
		eachProperty(s.Items.Value, do)
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		if part.Ref == "" {
			eachProperty(part.Value, do)
		}
	}
}

// Answers have times with milliseconds, for any precision of the store and any time zone.
func TestInstants(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("", 3600)
	for _, test := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 11, 24, 9, 32, 11, 509_905_000, time.UTC), `"2026-11-24T09:32:11.509Z"`},
		{time.Date(2026, 11, 24, 9, 32, 11, 0, time.UTC), `"2026-11-24T09:32:11.000Z"`},
		{time.Date(2026, 11, 24, 9, 32, 11, 999_999_999, berlin), `"2026-11-24T08:32:11.999Z"`},
	} {
		text, err := json.Marshal(api.Instant{test.at})
		if err != nil || string(text) != test.want {
			t.Errorf("%s: %s %v, want %s", test.at, text, err, test.want)
		}
	}
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if found := regexp.MustCompile("\\w+ +\\*?time\\.Time +`json:.*").Find(text); found != nil && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s: %s is not an Instant", file, found)
		}
	}
}

// openapi.yaml works with every code generator: our extensions are in the overlay, no query
// parameter has content, and no schema has a default, because openapi-typescript makes members
// with a default required.
func TestSpecIsCleanForGenerators(t *testing.T) {
	t.Parallel()
	if strings.Contains(string(headgate.Spec), "x-go-") {
		t.Error("the document has x-go- extensions: they belong in oapi-codegen-overlay.yaml")
	}
	doc := published()
	seen := map[string]string{}
	verb := regexp.MustCompile(`^(list|get|create|update|patch|delete|invite|remove|revoke|rotate|reset|save|validate|diff|publish|apply|download|settle|extend|release)[A-Z]`)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if strings.HasPrefix(path, "/v1/") && !verb.MatchString(op.OperationID) && op.Tags[0] != "decisions" && op.Tags[0] != "simulation" {
				t.Errorf("%s %s: %s does not begin with a known verb", method, path, op.OperationID)
			}
			if at, twice := seen[op.OperationID]; twice {
				t.Errorf("%s: also at %s", op.OperationID, at)
			}
			seen[op.OperationID] = path
			for _, p := range op.Parameters {
				switch s := p.Value.Schema; {
				case s == nil || len(p.Value.Content) > 0:
					t.Errorf("%s: parameter %s has content, not a schema", op.OperationID, p.Value.Name)
				case p.Value.In == "query" && s.Value.Type.Is("object") && p.Value.Style != "deepObject":
					t.Errorf("%s: parameter %s is an object without style deepObject", op.OperationID, p.Value.Name)
				default:
					wellNamed(t, op.OperationID+" "+p.Value.Name, s.Value)
				}
			}
		}
	}
	for name, s := range doc.Components.Schemas {
		wellNamed(t, name, s.Value)
		eachSchema(s.Value, func(s *openapi3.Schema) {
			if s.Default != nil {
				t.Errorf("schema %s: a default makes a member required in TypeScript; write it into the description", name)
			}
		})
	}
}

// wellNamed reports values of an enum for which generators cannot make a name.
func wellNamed(t *testing.T, at string, s *openapi3.Schema) {
	t.Helper()
	word := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	for _, v := range s.Enum {
		if text, ok := v.(string); ok && (!word.MatchString(text) || text == "true" || text == "false") {
			t.Errorf("%s: %q makes no name", at, text)
		}
	}
}

// eachSchema calls f for a schema and the schemas inside it, without references.
func eachSchema(s *openapi3.Schema, f func(*openapi3.Schema)) {
	f(s)
	for _, p := range s.Properties {
		if p.Ref == "" {
			eachSchema(p.Value, f)
		}
	}
	if s.Items != nil && s.Items.Ref == "" {
		eachSchema(s.Items.Value, f)
	}
	for _, p := range s.AllOf {
		if p.Ref == "" {
			eachSchema(p.Value, f)
		}
	}
}

// Requests are strict, so that a misspelled member is an error. Responses allow unknown
// members, so that a new member breaks no client. A schema that both use allows unknown members
// in openapi.yaml; the server still rejects them in requests.
func TestResponsesAreOpen(t *testing.T) {
	t.Parallel()
	doc := published()
	inResponses := responseSchemas(doc)
	named := map[string]bool{}
	for s := range inResponses {
		for _, b := range below(s) {
			named[b.Ref] = true
		}
	}
	for name, s := range doc.Components.Schemas {
		shown := inResponses[s.Value] || named["#/components/schemas/"+name] // a reference with a description is a copy
		eachSchema(s.Value, func(p *openapi3.Schema) {
			if !p.Type.Is("object") || p.AdditionalProperties.Schema != nil {
				return
			}
			closed := p.AdditionalProperties.Has != nil && !*p.AdditionalProperties.Has
			if shown == closed {
				t.Errorf("schema %s: in responses %v, closed %v", name, shown, closed)
			}
		})
	}
}

// A later release may add values to an enum in a response. The description says so.
func TestResponseEnumsAreExtensible(t *testing.T) {
	t.Parallel()
	enums := 0
	for s := range responseSchemas(published()) {
		if len(s.Enum) == 0 {
			continue
		}
		enums++
		if !strings.Contains(s.Description, "Later versions may add values.") {
			t.Errorf("%v (%s): the description does not say that later versions may add values", s.Enum, s.Description)
		}
	}
	if enums == 0 {
		t.Error("no enums")
	}
}

// responseSchemas returns all schemas of the answers, through references.
func responseSchemas(doc *openapi3.T) map[*openapi3.Schema]bool {
	schemas := map[*openapi3.Schema]bool{}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for _, r := range op.Responses.Map() {
				for _, media := range r.Value.Content {
					everySchema(media.Schema.Value, schemas)
				}
			}
		}
	}
	return schemas
}

// A configuration has every member of a tenant, so that an exported tenant is complete.
func TestConfiguredTenantHasEveryMember(t *testing.T) {
	t.Parallel()
	schemas := published().Components.Schemas
	for name := range schemas["TenantDocument"].Value.Properties {
		if schemas["ConfiguredTenant"].Value.Properties[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

// everySchema adds s and all schemas below it to seen, through references.
func everySchema(s *openapi3.Schema, seen map[*openapi3.Schema]bool) {
	if seen[s] {
		return
	}
	seen[s] = true
	for _, b := range below(s) {
		everySchema(b.Value, seen)
	}
}

// below returns the schemas inside a schema.
func below(s *openapi3.Schema) openapi3.SchemaRefs {
	out := slices.Concat(s.OneOf, s.AllOf, s.AnyOf, slices.Collect(maps.Values(s.Properties)))
	if s.Items != nil {
		out = append(out, s.Items)
	}
	if s.AdditionalProperties.Schema != nil {
		out = append(out, s.AdditionalProperties.Schema)
	}
	return out
}

// Every union has a discriminator: a member that is constant in each variant.
func TestUnionsAreDiscriminated(t *testing.T) {
	t.Parallel()
	unions := 0
	for s := range responseSchemas(published()) {
		if len(s.OneOf)+len(s.AnyOf) == 0 {
			continue
		}
		unions++
		if s.Discriminator == nil || len(s.Discriminator.Mapping) != len(s.OneOf) {
			t.Errorf("a union (%s) has no discriminator for each variant", s.Description)
			continue
		}
		name := s.Discriminator.PropertyName
		for value, ref := range s.Discriminator.Mapping {
			i := slices.IndexFunc(s.OneOf, func(o *openapi3.SchemaRef) bool { return o.Ref == ref.Ref })
			if i < 0 {
				t.Errorf("%s: %s is no variant", value, ref.Ref)
				continue
			}
			whole := *s.OneOf[i].Value
			merge(&whole)
			if p := whole.Properties[name]; p == nil || p.Value.Const != value || !slices.Contains(whole.Required, name) {
				t.Errorf("%s: %s is not required and always %q", ref.Ref, name, value)
			}
		}
	}
	if unions == 0 {
		t.Error("no unions")
	}
}

// The enum of codes is problem.Codes, which has every code in the source.
func TestCodesAreListed(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range problem.Codes {
		names = append(names, c.Name)
		if _, ok := problem.TypeByName(c.Type); !ok || c.Meaning == "" {
			t.Errorf("code %s: no type %q, or no meaning", c.Name, c.Type)
		}
	}
	if !slices.IsSorted(names) {
		t.Error("the codes are not sorted")
	}
	var enum []string
	for _, v := range published().Components.Schemas["ProblemCode"].Value.Enum {
		enum = append(enum, v.(string))
	}
	if !slices.Equal(enum, names) {
		t.Errorf("openapi.yaml has %v, problem.Codes %v", enum, names)
	}
	literal := regexp.MustCompile(`WithCode\([^"\n]*"([a-z_]+)"|\bCode: "([a-z_]+)"|\bcode: +"([a-z_]+)"|"(too_many_)"\+`)
	used := map[string]bool{}
	must(t, filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && slices.Contains([]string{".git", "storetest", "node_modules"}, e.Name()) {
			return cmp.Or(err, fs.SkipDir)
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			used[m[1]+m[2]+m[3]+m[4]] = true
		}
		return err
	}))
	if !used["slug_taken"] || !used["too_many_"] {
		t.Error("the source has no codes")
	}
	for code := range used {
		if code != "too_many_" && !slices.Contains(names, code) && !slices.Contains(problem.PageCodes, code) {
			t.Errorf("code %s is not in problem.Codes", code)
		}
	}
	for _, kind := range []string{"blocks", "entries", "grants", "overrides"} {
		if !slices.Contains(names, "too_many_"+kind) {
			t.Errorf("code too_many_%s is not in problem.Codes", kind)
		}
	}
}
