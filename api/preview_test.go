package api_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// Issue 13, 1.3: REST says what the page says: the least of the total, and what single requests would
// get.
func TestPreviewSaysWhatIsReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	a := w.do(call{method: "GET", path: "/v1/plans/pro/draft/preview", key: w.operator})
	type numbers struct {
		At               string
		Requests, Denied int64
		WouldDeny        int64 `json:"would_deny"`
		Keys, Tenants    int64
		LeftOut          *int64 `json:"left_out"`
		All              bool
		Text             string
		From, To         string
		Points           []numbers
	}
	var got struct {
		Requests, Denied int64
		WouldDeny        *struct{ Low, High int64 } `json:"would_deny"`
		AtLeast          *int64                     `json:"would_deny_at_least"`
		Replay           *numbers
		Policies         []struct {
			Policy, Certainty string
			Replay            *numbers
			Notes             []string
		}
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || got.Replay == nil || got.AtLeast == nil {
		t.Fatalf("%d %s %v", a.status, a.body, err)
	}
	r := got.Replay
	var sum numbers
	for _, p := range r.Points {
		sum.Requests, sum.Denied, sum.WouldDeny = sum.Requests+p.Requests, sum.Denied+p.Denied, sum.WouldDeny+p.WouldDeny
	}
	if r.Requests == 0 || r.Denied == 0 || sum.Requests != r.Requests || sum.Denied != r.Denied || sum.WouldDeny != r.WouldDeny || r.Tenants == 0 || r.From == "" {
		t.Errorf("the replay is %+v, and its points are %+v", r, sum)
	}
	// The draft has a new policy, so no total is known, and the least of it is.
	if got.WouldDeny != nil || *got.AtLeast > got.Requests {
		t.Errorf("in all %+v, at least %d", got.WouldDeny, *got.AtLeast)
	}
	texts := 0
	for _, p := range got.Policies {
		if q := p.Replay; q != nil && q.Requests > 0 {
			texts++
			if q.LeftOut == nil || !strings.Contains(q.Text, "were decided again: ") || q.Keys == 0 {
				t.Errorf("%s: %+v", p.Policy, q)
			}
		}
	}
	if texts == 0 {
		t.Errorf("no policy has a replay: %s", a.body)
	}
}
