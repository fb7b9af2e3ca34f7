package alerts

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/problem"
)

var began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// A play is the figures of a rule, one in each minute, and the phases after them. A phase
// is o(k), p(ending) or f(iring); a capital letter is a change.
func TestStep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		rule    Document
		figures []float64
		want    string
	}{
		{"at once", Document{Threshold: 20, Recovery: 20}, []float64{19, 20, 25, 20, 19}, "oFffO"},
		{"after a time", Document{Threshold: 20, Recovery: 20, For: 2 * time.Minute}, []float64{20, 20, 20, 20}, "ppFf"},
		{"a short peak", Document{Threshold: 20, Recovery: 20, For: 2 * time.Minute}, []float64{20, 20, 19, 20, 20, 20}, "ppoppF"},
		{"between the thresholds", Document{Threshold: 20, Recovery: 10}, []float64{20, 15, 10, 15, 9, 15, 20}, "FfffOoF"},
		{"recovery takes as long", Document{Threshold: 20, Recovery: 10, For: time.Minute}, []float64{20, 20, 9, 15, 9, 9}, "pFfffO"},
		{"recovery 0", Document{Threshold: 1}, []float64{1, 0.5, 0, 0}, "FfOo"},
		{"disabled", Document{Threshold: 20, Disabled: true}, []float64{30, 30}, "oo"},
	} {
		got, state := "", State{}
		for i, figure := range test.figures {
			var change Change
			state, change = test.rule.Step(state, figure, began.Add(time.Duration(i)*time.Minute))
			got += letterOf(state, change)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// A rule that is disabled while it fires ends its alert.
func TestDisabledRuleEndsItsAlert(t *testing.T) {
	t.Parallel()
	rule := Document{Threshold: 1}
	state, _ := rule.Step(State{}, 1, began)
	rule.Disabled = true
	if state, change := rule.Step(state, 0, began); change != Resolved || state.Phase != OK {
		t.Errorf("%v %+v", change, state)
	}
}

// For any figures, alerts begin and end in turns; one begins only after the figure was at
// or above the threshold for the whole time, and ends only after it was below the recovery
// threshold for the whole time.
func TestStepProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		threshold := rapid.Float64Range(1, 100).Draw(t, "threshold")
		rule := Document{
			Threshold: threshold, Recovery: rapid.Float64Range(0.5, threshold).Draw(t, "recovery"),
			For: time.Duration(rapid.IntRange(0, 5).Draw(t, "for")) * 10 * time.Second,
		}
		steps := int(rule.For / (10 * time.Second))
		var figures []float64
		state, open := State{}, false
		for i := range 60 {
			figure := rapid.Float64Range(0, 120).Draw(t, "figure")
			if rapid.Bool().Draw(t, "stays") && i > 0 {
				figure = figures[i-1]
			}
			figures = append(figures, figure)
			var change Change
			state, change = rule.Step(state, figure, began.Add(time.Duration(i)*10*time.Second))
			if change == Nothing {
				if open != (state.Phase == Firing) {
					t.Fatalf("step %d: the phase is %s without a change", i, state.Phase)
				}
				continue
			}
			if open == (change == Began) {
				t.Fatalf("step %d: change %d twice", i, change)
			}
			open = change == Began
			for k := i - steps; k <= i; k++ {
				if open && figures[k] < rule.Threshold || !open && figures[k] >= rule.Recovery {
					t.Fatalf("step %d: change %d, but the figure was %v at step %d", i, change, figures[k], k)
				}
			}
		}
	})
}

// The forecast begins below its threshold and ends above its recovery. Its peak is the
// smallest figure.
func TestStepBelow(t *testing.T) {
	t.Parallel()
	rule := Document{Metric: ExhaustedIn, Threshold: 24, Recovery: 36, For: time.Minute}
	got, state := "", State{}
	for i, figure := range []float64{25, 24, 20, 30, 36, 37, 36, 40, 50} {
		var change Change
		state, change = rule.Step(state, figure, began.Add(time.Duration(i)*time.Minute))
		got += letterOf(state, change)
		if change == Began && state.Peak != 20 {
			t.Errorf("peak %v", state.Peak)
		}
	}
	if got != "opFfffffO" {
		t.Errorf("%s", got)
	}
}

// Every template is a valid rule, once it has a policy where it needs one.
func TestTemplates(t *testing.T) {
	t.Parallel()
	for _, operator := range []bool{true, false} {
		for _, template := range Templates(operator) {
			d := template.Document
			if template.NeedsPolicy {
				d.Policy = "logins"
			}
			var f problem.Fields
			if d.validate(&f, operator); f.Err() != nil {
				t.Errorf("%s: %v", template.Slug, f.Err())
			}
			if template.Metric != DegradedShare && d.Recovery == d.Threshold && d.Threshold > 1 {
				t.Errorf("%s flaps: its alert ends where it begins", template.Slug)
			}
		}
	}
}

// letterOf returns a letter for the phase of a state: o, p or f. It is F if the alert began in this step, and O if it ended.
func letterOf(state State, change Change) string {
	switch change {
	case Began:
		return "F"
	case Resolved:
		return "O"
	case Nothing:
	}
	return map[Phase]string{OK: "o", "": "o", Pending: "p", Firing: "f"}[state.Phase]
}
