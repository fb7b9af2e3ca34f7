package storetest

import "time"

func testDropLease(s *suite) {
	take := func(holder string, want bool) {
		s.Helper()
		if got, err := s.Store.TakeLease(s.ctx, "l", holder, time.Minute); err != nil || got != want {
			s.Errorf("%s takes the lease: %t, error %v", holder, got, err)
		}
	}
	take("a", true)
	s.must(s.Other.DropLease(s.ctx, "l", "b"))
	take("b", false)
	s.must(s.Other.DropLease(s.ctx, "l", "a"))
	take("b", true)
}
