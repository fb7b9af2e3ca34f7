package web

import (
	"github.com/headgate/headgate/enforcement"
)

// Capacity is the most that a limit can have left.
func Capacity(l *enforcement.RuleLimit) int64 {
	if l.Algorithm.Bucket() && l.Burst != 0 {
		return l.Burst
	}
	return l.Quota
}
