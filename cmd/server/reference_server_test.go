package main

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var (
	printedCurl  = regexp.MustCompile(`(?s)aria-label="curl for ([^"]*)"><code>(.*?)</code>`)
	printedPath  = regexp.MustCompile(`https?://[^/'"]+([^'"]*)`)
	idVariable   = regexp.MustCompile(`^(.*)/\$([A-Z]+_ID)`)
	answerStatus = regexp.MustCompile(`^HTTP/\S+ ([0-9]{3})`)
)

// notRunnable lists the calls of /docs that fail on a new server, by their summary: the status,
// and why no example can avoid it.
var notRunnable = map[string]struct{ status, why string }{
	"Decide a request for a proxy":                  {"403", "only a proxy of HEADGATE_TRUSTED_PROXIES may send it"},
	"Charge an estimate for a time":                 {"429", "the checks before it have used the limit"},
	"List the outstanding reservations of a tenant": {"400", withTenant},
	"Read a reservation":                            {"400", withTenant},
	"Settle a reservation with the real cost":       {"400", withTenant},
	"Extend a reservation":                          {"400", withTenant},
	"Give a reservation back":                       {"400", withTenant},
	"Give back what a check charged":                {"400", withTenant},
	"Create a maintenance window":                   {"422", "the window of the example is over"},
	"Read a maintenance window":                     {"", "a new server has no maintenance window"},
	"Delete a maintenance window":                   {"", "a new server has no maintenance window"},
	"Read an alert":                                 {"", "a new server has no alert"},
	"Explain a recorded decision":                   {"", "a new server has no recorded decision"},
	"List the leases of a key":                      {"404", withoutPlaces},
	"Revoke a lease":                                {"422", withoutPlaces},
	"Read a member":                                 {"", "a member exists after a person accepts an invitation"},
	"Change the access of a member":                 {"", "a member exists after a person accepts an invitation"},
	"Change the role or the sign-in of a member":    {"", "a member exists after a person accepts an invitation"},
	"Remove a member":                               {"", "a member exists after a person accepts an invitation"},
	"Reset the second factor of a member":           {"", "a member exists after a person accepts an invitation"},
	"Reset the second factor of a person":           {"", "a person exists after an invitation is accepted or the server is set up"},
	"Read a person":                                 {"", "a person exists after an invitation is accepted or the server is set up"},
	"Change the access of a person":                 {"", "a person exists after an invitation is accepted or the server is set up"},
	"Change the role or the sign-in of a person":    {"", "a person exists after an invitation is accepted or the server is set up"},
	"Remove a person":                               {"", "a person exists after an invitation is accepted or the server is set up"},
}

const withoutPlaces = "the plan of the examples has no concurrency limit"

const withTenant = "the key of the operator must name a tenant, and the call has no optional parameters"

// The test runs the calls of /docs on a new server, in the order of the page, with the API key
// that the first start prints. A variable in a call has the ID from the previous response with
// the same path, as the page says.
func TestPrintedCallsOfTheReference(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	operator := node.await(node.out, operatorKeyLine)[1]
	ids := map[string]string{} // by path of the collection
	calls := printedCurl.FindAllStringSubmatch(referencePageOf(t, node.origin), -1)
	if len(calls) < 100 {
		t.Fatalf("/docs prints %d calls", len(calls))
	}
	for _, c := range calls {
		summary, command := html.UnescapeString(c[1]), html.UnescapeString(c[2])
		path := printedPath.FindStringSubmatch(command)[1]
		environment := append(os.Environ(), "HEADGATE_TOKEN="+operator)
		refusal, listed := notRunnable[summary]
		if v := idVariable.FindStringSubmatch(path); v != nil {
			if (ids[v[1]] == "") != (listed && refusal.status == "") {
				t.Errorf("%s: %s has the id %q before it, notRunnable says %q", summary, v[1], ids[v[1]], refusal.why)
			}
			if ids[v[1]] == "" {
				continue
			}
			environment = append(environment, v[2]+"="+ids[v[1]])
		}
		shell := exec.CommandContext(t.Context(), "sh", "-c", command+" -sS --max-time 120")
		shell.Env = environment
		out, err := shell.CombinedOutput()
		status := answerStatus.FindStringSubmatch(string(out))
		switch {
		case err != nil || status == nil:
			t.Errorf("%s: %v\n%s\n%s", summary, err, command, out)
			continue
		case listed && status[1] == refusal.status:
		case listed || status[1][0] != '2':
			t.Errorf("%s: %s\n%s\n%s", summary, status[1], command, out)
		}
		_, body, _ := strings.Cut(string(out), "\r\n\r\n")
		collection, _, _ := strings.Cut(path, "?")
		if id := idOf(body); id != "" {
			ids[collection] = id
		}
	}
}

func referencePageOf(t *testing.T, origin string) string {
	t.Helper()
	r, err := http.Get(origin + "/docs")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// idOf returns the id of the object that an answer created, or of the first one that it lists.
func idOf(body string) string {
	type object struct{ ID string }
	var answer struct {
		ID           string
		Key, Channel object
		Data         []object
	}
	if json.Unmarshal([]byte(body), &answer) != nil {
		return ""
	}
	for _, o := range append([]object{{answer.ID}, answer.Key, answer.Channel}, answer.Data...) {
		if o.ID != "" {
			return o.ID
		}
	}
	return ""
}
