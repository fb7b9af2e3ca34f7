package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

var leaseScript = newBody(scriptText("arith.lua") + "\n" + scriptText("lease.lua"))

var _ enforcement.Drawer = (*Limiter)(nil)

// drawSize is the number of bytes for one draw in the reply of lease.lua.
const drawSize = 48

// Draw implements [enforcement.Drawer]. It leases quota with one script call, or on a cluster
// with one call for each home. A failed draw does not open the breaker, because no check waits
// for a draw.
func (l *Limiter) Draw(ctx context.Context, draws []enforcement.Draw, drawn []enforcement.Drawn) {
	if !l.clocks.byHome {
		l.draw(ctx, draws, drawn)
		return
	}
	done := make([]bool, len(draws))
	for i := range draws {
		if done[i] {
			continue
		}
		var part []enforcement.Draw
		var places []int
		for k := i; k < len(draws); k++ {
			if draws[k].Home == draws[i].Home {
				part, places, done[k] = append(part, draws[k]), append(places, k), true
			}
		}
		answers := make([]enforcement.Drawn, len(part))
		l.draw(ctx, part, answers)
		for k, place := range places {
			drawn[place] = answers[k]
		}
	}
}

// draw makes draws with one run of lease.lua.
func (l *Limiter) draw(ctx context.Context, draws []enforcement.Draw, drawn []enforcement.Drawn) {
	var b []byte
	err := l.mayDraw(ctx, draws)
	if err == nil {
		b, err = l.runDraws(ctx, draws)
	}
	if err == nil && len(b) != 8+drawSize*len(draws) {
		err = errors.New("the reply has a wrong length")
	}
	for i := range drawn {
		if err != nil {
			drawn[i] = enforcement.Drawn{Err: fmt.Errorf("redis: draw: %w", err)}
			continue
		}
		at := 8 + drawSize*i
		l.denials.drop(draws[i].Home, &draws[i].Key, int64At(b, 0))
		a := enforcement.Drawn{At: int64At(b, 0), Units: int64At(b, at), Until: int64At(b, at+8)}
		if rev := int64At(b, at+16); rev != 0 {
			a.State = enforcement.State{Rev: rev, A: int64At(b, at+24), B: int64At(b, at+32), T: int64At(b, at+40)}
			if !draws[i].Meter.Algorithm.Bucket() {
				a.State, _ = draws[i].Meter.Settle(a.State, max(rev, draws[i].Rev), a.At)
			}
		}
		drawn[i] = a
	}
}

// mayDraw returns the reason why no draw can be made now, or nil. On a cluster, all draws must
// have the same home.
func (l *Limiter) mayDraw(ctx context.Context, draws []enforcement.Draw) error {
	if l.cluster == nil || len(draws) == 0 {
		return nil
	}
	s, _, err := l.cluster.of(ctx, draws[0].Home)
	if err != nil {
		return err
	}
	return l.mayCall(s)
}

// runDraws runs lease.lua by its hash. If the server replies that it does not know the hash,
// it has done nothing, and runDraws sends the text of the script.
func (l *Limiter) runDraws(ctx context.Context, draws []enforcement.Draw) ([]byte, error) {
	keys := make([]string, 0, 2*len(draws))
	now := int64(0)
	if l.config.Now != nil {
		now = l.config.Now()
	}
	b := appendInts([]byte{boolByte(l.config.Now != nil)}, now)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(draws)))
	for i := range draws {
		d := &draws[i]
		name := appendKey(nil, l.config.Prefix, d.Home, &d.Key)
		// The second key stores the outstanding units of a bucket. It cannot be the name of a
		// counter, because the name of a counter ends after its partition, which has a fixed length.
		keys = append(keys, string(name), string(append(name, 'L')))
		m, epoch := d.Meter, int64(0)
		if m.Algorithm.Bucket() {
			epoch = m.LeaseEpoch()
		}
		b = append(b, scriptKinds[m.Algorithm])
		b = appendInts(b, d.Rev, m.Quota, m.Window, m.Capacity, m.P, m.Q, epoch, d.Start, d.Want, d.Least, d.Part)
		for _, lot := range d.Lots {
			b = appendInts(b, lot.Until, lot.Spent, lot.Back)
		}
	}
	answer := l.client.EvalSha(ctx, leaseScript.sha, keys, b)
	if err := answer.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		answer = l.client.Eval(ctx, leaseScript.text, keys, b)
	}
	text, err := answer.Text()
	return []byte(text), err
}
