package enforcement

import (
	"strings"
	"testing"
)

// A check is validated in the same way for every protocol.
func TestCheckTakesWhatIsAsked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxAttributeValue+1)
	for name, c := range map[string]struct {
		set  func(*Check) error
		want string // part of the error; "": no error
	}{
		"method":            {func(c *Check) error { return c.SetMethod("M-SEARCH") }, ""},
		"method in lower":   {func(c *Check) error { return c.SetMethod("post") }, "in upper case"},
		"no method":         {func(c *Check) error { return c.SetMethod("") }, "in upper case"},
		"method with space": {func(c *Check) error { return c.SetMethod("GET ") }, "in upper case"},
		"longest method":    {func(c *Check) error { return c.SetMethod(strings.Repeat("A", maxMethod)) }, ""},
		"too long a method": {func(c *Check) error { return c.SetMethod(strings.Repeat("A", maxMethod+1)) }, "1 to 32"},
		"path":              {func(c *Check) error { return c.SetPath("/v1//login/?x=1") }, ""},
		"path without /":    {func(c *Check) error { return c.SetPath("v1") }, "must begin with /"},
		"longest path":      {func(c *Check) error { return c.SetPath("/" + strings.Repeat("a", MaxPath-1)) }, ""},
		"too long a path":   {func(c *Check) error { return c.SetPath("/" + strings.Repeat("a", MaxPath)) }, "at most 8192 bytes"},
		"attribute":         {func(c *Check) error { return c.AddAttribute("user", "u1") }, ""},
		"empty value":       {func(c *Check) error { return c.AddAttribute("ip", "") }, ""},
		"no name":           {func(c *Check) error { return c.AddAttribute("", "x") }, "has a name that is empty"},
		"too long a name":   {func(c *Check) error { return c.AddAttribute(long[:MaxAttributeName+1], "x") }, "longer than 64 bytes"},
		"too long a value":  {func(c *Check) error { return c.AddAttribute("user", long) }, "at most 1024 bytes"},
		"no address":        {func(c *Check) error { return c.AddAttribute("ip", "203.0.113.9:80") }, "not an IP address"},
	} {
		var check Check
		err := c.set(&check)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && (len(check.Attributes) > 0 || check.Method != "" || check.Path != "") {
			t.Errorf("%s: it was refused and is there: %+v", name, check)
		}
	}

	var check Check
	for _, err := range []error{check.SetMethod("GET"), check.SetPath("/v1//login/?x=1"), check.AddAttribute("ip", "::ffff:203.0.113.9")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if check.Path != "/v1/login" || check.Attributes[0].Value != "203.0.113.9" || !check.IP.Is4() {
		t.Errorf("%+v", check)
	}
	for len(check.Attributes) < MaxAttributes {
		if err := check.AddAttribute("user", "u1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := check.AddAttribute("user", "u1"); err == nil || len(check.Attributes) != MaxAttributes {
		t.Errorf("one too many: %v, %d attributes", err, len(check.Attributes))
	}
}
