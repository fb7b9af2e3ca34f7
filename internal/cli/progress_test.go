package cli

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgress(t *testing.T) {
	for _, test := range []struct {
		name        string
		interactive bool
		total       int64
		takes       time.Duration
		want        []string // "": the command prints nothing
	}{
		{"a bar", true, 10, 6 * time.Second, []string{"verify", "20%", "50%", "[2s:", "[5s:"}},
		{"no total", true, 0, 6 * time.Second, []string{"verify", "[4s]"}},
		{"more than the total", true, 3, 6 * time.Second, []string{"100%"}},
		{"short work", true, 10, progressDelay / 2, nil},
		{"no terminal", false, 10, time.Minute, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				var done atomic.Int64
				stop := Terminal{Stderr: &out, Interactive: test.interactive}.Progress("verify", test.total, done.Load)
				for range test.takes / time.Second {
					time.Sleep(time.Second)
					done.Add(1)
				}
				stop()
				for _, want := range test.want {
					if !strings.Contains(out.String(), want) {
						t.Errorf("%q lacks %q", out.String(), want)
					}
				}
				if test.want == nil && out.Len() > 0 {
					t.Errorf("printed %q", out.String())
				}
				if last := out.String()[strings.LastIndexByte(out.String(), '\r')+1:]; strings.TrimSpace(last) != "" {
					t.Errorf("the line is not cleared: %q", last)
				}
			})
		})
	}
}
