package inprocess_test

import (
	"testing"

	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

func fixture(_ *testing.T, c *limitertest.Clock) limitertest.Fixture {
	return limitertest.Fixture{Limiter: inprocess.New(inprocess.Config{Now: c.Now})}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, fixture)
}

func TestExtremes(t *testing.T) {
	t.Parallel()
	limitertest.Extremes(t, fixture)
}

func TestSequences(t *testing.T) {
	t.Parallel()
	limitertest.Sequences(t, fixture, 0, 0)
}

func TestReservations(t *testing.T) {
	t.Parallel()
	limitertest.Reservations(t, fixture)
}

func TestReservationSequences(t *testing.T) {
	t.Parallel()
	limitertest.ReservationSequences(t, fixture, 0, 0)
}
