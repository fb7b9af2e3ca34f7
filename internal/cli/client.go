package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer is the maximum size of a response in bytes.
const maxAnswer = 256 << 20

// A client calls the REST API of one installation.
type client struct {
	terminal Terminal
	output   Output
	base     string // URL of the installation, without a slash at the end
	token    string
	http     *http.Client
	dryRun   bool // write prints the request and sends nothing
	// idempotencyKey is the value of the header Idempotency-Key in each request. If it is "",
	// requests do not have the header.
	idempotencyKey string
}

// client returns a client for the installation that c selects.
func (c Connection) client(t Terminal) (*client, error) {
	at, token, err := c.place(t)
	if err != nil {
		return nil, err
	}
	if c.Timeout <= 0 {
		return nil, usage("--timeout: must be more than 0")
	}
	return &client{
		terminal: t, output: c.Output, base: strings.TrimRight(at.String(), "/"), token: token,
		http: &http.Client{
			Timeout:       c.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// An answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// A problem is an RFC 9457 problem of the API.
type problem struct {
	Title     string  `json:"title"`
	Detail    string  `json:"detail"`
	Code      string  `json:"code"`
	RequestID string  `json:"request_id"`
	Errors    []fault `json:"errors"`
}

// A fault names one invalid field of a request and what is wrong with it.
type fault struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// A problemError is the error for a response that contains a problem.
type problemError struct {
	status int
	problem
}

func (e *problemError) Error() string {
	var b strings.Builder
	b.WriteString(plain(cmp.Or(e.Detail, e.Title)))
	fmt.Fprintf(&b, " (status %d, request %s)", e.status, plain(e.RequestID))
	for _, f := range e.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", plain(f.Pointer), plain(f.Detail))
	}
	return b.String()
}

// path returns a path below /v1 with escaped segments.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// get reads an object.
func (c *client) get(ctx context.Context, path string, query url.Values) (answer, error) {
	return c.send(ctx, http.MethodGet, path, query, nil, "")
}

// write sends a request that changes something. With --dry-run, it prints the request, sends
// nothing, and returns false.
func (c *client) write(ctx context.Context, method, path string, body any, ifMatch string) (answer, bool, error) {
	if !c.dryRun {
		a, err := c.send(ctx, method, path, nil, body, ifMatch)
		return a, err == nil, err
	}
	c.terminal.say("dry run: nothing was sent")
	request := map[string]any{"method": method, "path": path}
	if body != nil {
		request["body"] = body
	}
	text, err := json.Marshal(request)
	if err != nil {
		return answer{}, false, err
	}
	return answer{}, false, c.output.print(c.terminal, text, func(w io.Writer) error {
		fmt.Fprintln(w, method, path)
		if body == nil {
			return nil
		}
		indented, err := json.MarshalIndent(body, "", "  ")
		fmt.Fprintln(w, string(indented))
		return err
	})
}

// send sends a request and reads the response. If the status is 400 or higher, it returns an error
// with the exit code for the status.
func (c *client) send(ctx context.Context, method, path string, query url.Values, body any, ifMatch string) (answer, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(text)
	}
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return answer{}, usage("%w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("User-Agent", "headgate-cli/"+c.terminal.Version)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if ifMatch != "" {
		request.Header.Set("If-Match", ifMatch)
	}
	if c.idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", c.idempotencyKey)
	}
	defer c.terminal.Progress("waiting for "+c.base, 0, nil)()
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, c.unreachable(ctx, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, c.unreachable(ctx, err)
	}
	a := answer{response.StatusCode, response.Header, text}
	return a, a.err(c.base)
}

// unreachable returns the error for a request without a response.
func (c *client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // leave out the method and the URL
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("no answer within %s", c.http.Timeout.Round(time.Millisecond))
	}
	return &Error{ExitUnreachable, fmt.Errorf("%s cannot be reached: %w", c.base, err)}
}

// err returns the error that a response stands for, or nil if its status is a success. base is the
// address of the installation, for the message.
func (a answer) err(base string) error {
	if a.status < 300 {
		return nil
	}
	e := problemError{status: a.status}
	if a.status < 400 || json.Unmarshal(a.body, &e.problem) != nil || e.Title == "" {
		return &Error{codeOf(a.status), fmt.Errorf("%s answered with status %d and no problem: is it a Headgate API?", base, a.status)}
	}
	return &Error{codeOf(a.status), &e}
}

// list reads all rows of a list, page after page. If limit is not 0, it reads only the first limit
// rows. It returns the rows as {"data": […]}.
func (c *client) list(ctx context.Context, path string, query url.Values, limit int) ([]byte, error) {
	rows := []json.RawMessage{}
	for {
		size := 100
		if limit > 0 {
			size = min(size, limit-len(rows))
		}
		query.Set("limit", fmt.Sprint(size))
		a, err := c.get(ctx, path, query)
		if err != nil {
			return nil, err
		}
		var page struct {
			Data []json.RawMessage `json:"data"`
			More bool              `json:"has_more"`
			Next string            `json:"next_cursor"`
		}
		if err := json.Unmarshal(a.body, &page); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		rows = append(rows, page.Data...)
		if !page.More || page.Next == "" || limit > 0 && len(rows) >= limit {
			return json.Marshal(map[string]any{"data": rows})
		}
		query.Set("cursor", page.Next)
	}
}
