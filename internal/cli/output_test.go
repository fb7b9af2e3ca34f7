package cli

import "testing"

func TestCell(t *testing.T) {
	t.Parallel()
	limit := func(name string) any { return map[string]any{"limit": name, "cost": 3} }
	for want, v := range map[string]any{
		"-":                               []any{},
		"check,manage":                    []any{"check", "manage"},
		"cost=3,limit=l1":                 []any{limit("l1")},
		"cost=3,limit=l1; cost=3,limit=q": []any{limit("l1"), limit("q")},
	} {
		if got := cell(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
