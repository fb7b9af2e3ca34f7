package enforcement

import (
	"context"
	"log/slog"
	"time"
)

const (
	sweepReservations = time.Second // time between two searches for reservations whose time has passed
	mostDue           = 500         // reservations that one look ends
	looksPerCount     = 10          // number of searches after which the outstanding reservations are counted
)

// RunReservations ends reservations whose time has passed, until ctx ends. It ends a
// reservation within two seconds after that time. If the node that ends reservations stops,
// another node does so within six seconds. If the limiter is unavailable, reservations end
// when it is available again. subject returns the tenant that has a number.
func (e *Engine) RunReservations(ctx context.Context, subject func(number uint32) (*Subject, bool)) error {
	ticker := time.NewTicker(sweepReservations)
	defer ticker.Stop()
	var logged time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := e.EndReservations(ctx, subject)
		if err != nil && ctx.Err() == nil && time.Since(logged) > time.Minute {
			logged = time.Now()
			e.logger.Warn("reservations that are due were not ended: the node tries again", "err", err)
		}
	}
}

// EndReservations ends the reservations whose time has passed. Every tenth call also reads
// the number of outstanding reservations.
func (e *Engine) EndReservations(ctx context.Context, subject func(number uint32) (*Subject, bool)) error {
	if err := e.endAllDue(ctx, subject); err != nil {
		return err
	}
	if e.reserved.looks.Add(1)%looksPerCount != 1 {
		return nil
	}
	n, err := e.reserver.OutstandingTotal(ctx)
	if err == nil {
		e.reserved.outstanding.Store(n)
	}
	return err
}

func (e *Engine) endAllDue(ctx context.Context, subject func(number uint32) (*Subject, bool)) error {
	for {
		due, err := e.reserver.Due(ctx, mostDue)
		if err != nil {
			return err
		}
		for i := range due {
			if err := e.endDue(ctx, &due[i], subject); err != nil {
				return err
			}
		}
		if len(due) < mostDue {
			return nil
		}
	}
}

// endDue ends one reservation whose time has passed. If the record of the reservation is
// gone, endDue only removes its entry from the list.
func (e *Engine) endDue(ctx context.Context, due *ReservationEntry, subject func(number uint32) (*Subject, bool)) error {
	s, _ := subject(due.Key.Tenant)
	read := Request{Mode: Peek, Home: due.Home, Reservation: &Reservation{Key: due.Key}}
	o, err := e.adjust(ctx, read)
	if err != nil {
		return err
	}
	if o.Record != nil {
		data, err := readReservation(o.Record)
		if err == nil {
			return e.expire(ctx, s, due.Home, due.Key, o.Record, data)
		}
		e.logger.LogAttrs(ctx, slog.LevelWarn, "a reservation ends without a refund: its record is invalid", slog.Any("err", err))
	}
	record := o.Record
	if record == nil {
		record = new(Record)
	}
	request := Request{Mode: Adjust, Home: due.Home, Reservation: &Reservation{
		Key: due.Key, Most: e.mostReservations, Kept: ReservationKept.Microseconds(), Version: record.Version, Ends: true, Due: true,
	}}
	_, err = e.adjust(ctx, request)
	return err
}
