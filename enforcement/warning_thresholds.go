package enforcement

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxWarnAt is the maximum number of warning thresholds of a limit.
const MaxWarnAt = 4

// WarnAt has the warning thresholds of a limit, as percentages of its capacity from 1 to 100 in
// ascending order. Unused elements are 0 and come last. A decision says which thresholds the used
// units have reached. Thresholds never affect whether a check is allowed.
type WarnAt [MaxWarnAt]uint8

// NewWarnAt returns thresholds from percentages in any order. If the percentages are not valid,
// fault is an error message; otherwise it is "".
func NewWarnAt(percentages []int64) (w WarnAt, fault string) {
	percentages = slices.Sorted(slices.Values(percentages))
	if len(percentages) > MaxWarnAt {
		return w, fmt.Sprintf("must be at most %d percentages", MaxWarnAt)
	}
	for i, p := range percentages {
		switch {
		case p < 1 || p > 100:
			return WarnAt{}, "must be percentages from 1 to 100"
		case i > 0 && p == percentages[i-1]:
			return WarnAt{}, fmt.Sprintf("has %d twice", p)
		}
		w[i] = uint8(p)
	}
	return w, ""
}

// Percentages returns the thresholds as a list.
func (w WarnAt) Percentages() (list []int) {
	for _, p := range w {
		if p != 0 {
			list = append(list, int(p))
		}
	}
	return list
}

// String returns the thresholds as a text, such as "80, 95", or "".
func (w WarnAt) String() string {
	var texts []string
	for _, p := range w.Percentages() {
		texts = append(texts, strconv.Itoa(p))
	}
	return strings.Join(texts, ", ")
}

// MarshalJSON returns the thresholds as a list of numbers.
func (w WarnAt) MarshalJSON() ([]byte, error) { return json.Marshal(w.Percentages()) }

// valid reports whether w can be a result of NewWarnAt.
func (w WarnAt) valid() bool {
	for i, p := range w {
		if p > 100 || i > 0 && p != 0 && p <= w[i-1] || i > 0 && p != 0 && w[i-1] == 0 {
			return false
		}
	}
	return true
}

// Reached returns the largest threshold that used, as a percentage of capacity, has reached; 0 if
// there is none. used and capacity are at most MaxQuota + MaxRollover, so the products do not
// overflow.
func (w *WarnAt) Reached(used, capacity int64) (largest int) {
	for _, p := range w {
		if p != 0 && used*100 >= int64(p)*capacity {
			largest = int(p)
		}
	}
	return largest
}

// NearLimit returns the largest threshold, in percent, that the limit's used units have reached
// after the decision. It returns 0 if there is none, or if the quota is 0. It also returns 0 if a
// failure mode decided, because then the units that other nodes used are unknown.
func (l *LimitState) NearLimit() int {
	capacity := l.Capacity()
	if l.Limit.WarnAt[0] == 0 || !l.Shared || capacity == 0 {
		return 0
	}
	return l.Limit.WarnAt.Reached(capacity-max(l.Remaining, 0), capacity)
}

// NearLimit returns the largest threshold, in percent, that any limit of a policy in force has
// reached; 0 if there is none.
func (d *Decision) NearLimit() (largest int) {
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Rule.Mode.InForce() {
			largest = max(largest, l.NearLimit())
		}
	}
	return largest
}
