package requests

import (
	"math"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A Wait is a range of retry times. It is one bar in the histogram, and one choice of the
// filter.
type Wait struct {
	Name  string // name of the range in the URL of a list of denials
	To    time.Duration
	Label string
	Edge  string
}

// Waits lists the bars of the histogram of retry times. Each ends at To and starts where the
// previous one ends.
var Waits = []Wait{
	{"1s", time.Second, "up to 1 s", "≤ 1 s"},
	{"5s", 5 * time.Second, "1 s to 5 s", "≤ 5 s"},
	{"15s", 15 * time.Second, "5 s to 15 s", "≤ 15 s"},
	{"30s", 30 * time.Second, "15 s to 30 s", "≤ 30 s"},
	{"1m", time.Minute, "30 s to 1 min", "≤ 1 min"},
	{"5m", 5 * time.Minute, "1 min to 5 min", "≤ 5 min"},
	{"15m", 15 * time.Minute, "5 min to 15 min", "≤ 15 min"},
	{"1h", time.Hour, "15 min to 1 h", "≤ 1 h"},
	{"6h", 6 * time.Hour, "1 h to 6 h", "≤ 6 h"},
	{"1d", web.Day, "6 h to 1 day", "≤ 1 day"},
	{"longer", math.MaxInt64, "more than 1 day", "> 1 day"},
}

// NeverWait is the name for denials that have no retry time, because waiting does not help.
const NeverWait = "never"

// WaitNamed returns the range of retry times, in milliseconds, that has a name in the URL.
// It returns false if the name is unknown.
func WaitNamed(name string) (metrics.Bucket, bool) {
	if name == NeverWait {
		return metrics.Bucket{To: enforcement.Never}, true
	}
	var from int64 = -1
	for _, wait := range Waits {
		if wait.Name == name {
			return metrics.Bucket{From: from, To: wait.To.Milliseconds()}, true
		}
		from = wait.To.Milliseconds()
	}
	return metrics.Bucket{}, false
}

func Millis(ms int64) views.Number { return views.Duration(time.Duration(ms) * time.Millisecond) }
