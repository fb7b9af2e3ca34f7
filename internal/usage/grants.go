package usage

import (
	"context"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
)

// GrantsLeft returns how many units are left of each grant of one tenant, by grant ID. It reads all
// grants with one call of the limiter. If the limiter does not answer, the result is empty.
func (s *Service) GrantsLeft(ctx context.Context, grants []exceptions.Grant) map[string]int64 {
	if len(grants) == 0 {
		return nil
	}
	subject, err := s.subject(grants[0].TenantID)
	if err != nil {
		return nil
	}
	specs := make([]enforcement.Grant, len(grants))
	for i := range grants {
		specs[i] = grants[i].Spec()
	}
	units, err := s.cfg.Engine.GrantsLeft(ctx, subject, specs)
	if err != nil {
		return nil
	}
	left := make(map[string]int64, len(grants))
	for i := range grants {
		left[grants[i].ID] = units[i]
	}
	return left
}
