package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pulseEvery = 400 * time.Millisecond // interval of pulses while the breaker is closed
	// refusedFor is the minimum time for which Redis counts as denying writes after a failed
	// write. Without this minimum, the status of a server near its memory limit would change with
	// each call.
	refusedFor = time.Second
)

var pulseScript = newBody(scriptText("pulse.lua"))

// A Refusal describes a period in which Redis answers but denies writes, for example
// because its memory is full.
type Refusal struct {
	// Since is the time of the first failed write of the period. It is zero while Redis
	// accepts writes.
	Since time.Time
	// Code is the error code of the reply, such as READONLY or OOM. It is "other" if notDone does
	// not have the code.
	Code string
	// Answer is the text of the last reply.
	Answer string
}

// A Loss describes a loss of data in Redis, as far as this node knows.
type Loss struct {
	// At is the time at which this node noticed the loss. It is zero if there was no loss.
	At time.Time
	// Restarted says that the server process is a new one.
	Restarted bool
	// All says that all earlier data is lost.
	All bool
	// Newest is the time of the newest data that survived, by the clock of Redis. It is wrong by
	// at most half a second. It is zero if All is set, or if the time is not known.
	Newest time.Time
}

// String describes the loss in one sentence, for operators.
func (l Loss) String() string {
	cause := "was emptied (FLUSHALL, FLUSHDB)"
	if l.Restarted {
		cause = "restarted, or another server took its place"
	}
	switch {
	case l.All:
		return "Redis " + cause + " and has none of the earlier counts"
	case l.Newest.IsZero():
		return "Redis " + cause + " and has an older copy of the counts"
	}
	return "Redis " + cause + " and has no counts after " + l.Newest.UTC().Format(time.RFC3339)
}

// marks has the marker keys as this node last read them. The node compares them with the
// markers in Redis to detect lost data. There is one pair of marker keys; on a cluster, there
// is a pair for each home. health.mu guards all fields except node.
type marks struct {
	node  string          // suffix of the names of the marker keys of this node
	last  map[string]mark // by home
	epoch string          // epoch of the data in Redis; "" before the first pulse
	run   string          // run_id of the server when the epoch last changed; "" on a cluster
	loss  Loss
	count int64
}

type mark struct {
	epoch  string
	number int64
}

// pulseHomes returns the homes that have marker keys. On a cluster these are all shared
// homes, so that each server has marker keys.
func (l *Limiter) pulseHomes() []string {
	if !l.clocks.byHome {
		return []string{"00"}
	}
	homes := make([]string, l.config.Tags)
	for i := range homes {
		homes[i] = fmt.Sprintf("%02x", i)
	}
	return homes
}

// A pulseReply is the reply of pulse.lua for one home.
type pulseReply struct {
	home, kind, refused string
	mark
	newest int64
}

// pulse writes the marker keys of this node to Redis, on the probe connection. From the reply,
// it records whether Redis accepts writes and whether Redis lost data. If Redis does not
// answer, pulse returns false. It records no failure then, because the probes do so.
func (l *Limiter) pulse(ctx context.Context) bool {
	if l.config.Now != nil {
		return true // a simulation uses separate keys
	}
	h, sent := &l.health, time.Now()
	homes := l.pulseHomes()
	h.mu.Lock()
	last := h.marks.last
	h.mu.Unlock()
	commands, _ := l.probe.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, home := range homes {
			known := last[home]
			// No counter has one of these names: the first name is shorter than the name of a counter,
			// and the second is longer.
			marker := l.config.Prefix + "{" + home + "}m"
			keys := []string{marker, marker + h.marks.node, l.durableKey(home, markerKey)}
			p.Eval(ctx, pulseScript.text, keys, randomID(), known.epoch, known.number)
		}
		return nil
	})
	replies := make([]pulseReply, 0, len(homes))
	for i, command := range commands {
		reply, err := readPulse(homes[i], command.(*redis.Cmd))
		switch {
		case err != nil && !isReply(err) && l.cluster == nil:
			return false
		case err != nil && (!isReply(err) || movesSlot(err)):
			continue // this home has no reply, because its server is away or its slot moves; other homes do
		case err != nil:
			l.refusedBy(err.Error())
			return true
		case reply.refused != "":
			l.refusedBy(reply.refused)
			return true
		}
		replies = append(replies, reply)
	}
	if len(replies) == 0 {
		return false
	}
	h.accepted(sent, l.log)
	l.compare(ctx, replies)
	return true
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func readPulse(home string, command *redis.Cmd) (r pulseReply, err error) {
	list, err := command.Slice()
	if err != nil {
		return r, err
	}
	fields := [5]bool{len(list) == 5}
	if fields[0] {
		r.home = home
		r.epoch, fields[0] = list[0].(string)
		r.number, fields[1] = list[1].(int64)
		r.kind, fields[2] = list[2].(string)
		r.newest, fields[3] = list[3].(int64)
		r.refused, fields[4] = list[4].(string)
	}
	if fields != [5]bool{true, true, true, true, true} {
		return r, fmt.Errorf("redis: pulse: the reply has a wrong form: %.80v", list)
	}
	return r, nil
}

// compare compares the markers in the replies with those of the last pulse. If they show a loss
// of data, it records the loss.
func (l *Limiter) compare(ctx context.Context, replies []pulseReply) {
	h := &l.health
	h.mu.Lock()
	changed, lost, all, newest := h.marks.epoch == "", false, true, int64(0)
	for i := range replies {
		r := &replies[i]
		if known := h.marks.last[r.home]; known.epoch != r.epoch {
			changed = true
			if known.epoch != "" {
				lost = true
				all = all && r.kind == "empty"
				newest = max(newest, r.newest)
			}
		}
	}
	was := h.marks.run
	h.mu.Unlock()
	run := was
	if changed && !l.clocks.byHome {
		info, _ := l.probe.Info(ctx, "server").Result() // no error check, because the user may lack the permission
		run = infoField(info, "run_id")
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if changed {
		l.durable.suspect() // KeepRestored checks the markers of all homes
	}
	next := maps.Clone(h.marks.last) // begins with the markers of homes that have no reply
	if next == nil {
		next = make(map[string]mark, len(replies))
	}
	for i := range replies {
		next[replies[i].home] = replies[i].mark
	}
	homes, sum := l.pulseHomes(), sha256.New()
	h.marks.last, h.marks.run = next, run
	for _, home := range homes {
		sum.Write([]byte(next[home].epoch))
	}
	switch {
	case len(homes) == 1:
		h.marks.epoch = next[homes[0]].epoch
	case len(next) == len(homes): // otherwise the epoch is not known yet
		h.marks.epoch = hex.EncodeToString(sum.Sum(nil)[:16])
	}
	if lost {
		loss := Loss{At: time.Now(), Restarted: run != was, All: all}
		if !all && newest > 0 {
			loss.Newest = time.UnixMicro(newest)
		}
		h.marks.lose(loss, l.log)
	}
}

func (m *marks) lose(loss Loss, log *slog.Logger) {
	m.loss, m.count = loss, m.count+1
	log.Error("redis lost data: earlier usage is lost, and used quota is available again", "what", loss.String())
}

// Expect compares the data in Redis with epoch, a value of Status.Epoch that Headgate recorded
// earlier. If they differ, data was lost while no node ran, and Expect records the loss. If
// there was no pulse yet, Expect cannot compare: it returns false, and the caller tries again.
func (l *Limiter) Expect(epoch string) bool {
	h := &l.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.marks.epoch == "" {
		return false
	}
	if epoch != "" && epoch != h.marks.epoch && h.marks.count == 0 {
		h.marks.lose(Loss{At: time.Now(), Restarted: true, All: true}, l.log)
	}
	return true
}

// refusedBy records that Redis denied a write with an error reply.
func (l *Limiter) refusedBy(answer string) {
	code := errorCode(answer)
	switch code {
	case "NOSCRIPT", "MOVED", "ASK", "TRYAGAIN":
		return // these errors are not about writes
	case "":
		if strings.Contains(answer, nonLocal) {
			return // a slot is moving
		}
		code = "other"
	}
	h, now := &l.health, time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusedAt = now
	began := h.refusing.Since.IsZero()
	if began {
		h.refusing.Since = now
	}
	h.refusing.Code, h.refusing.Answer = strings.TrimPrefix(code, "ERR "), brief(answer)
	if began {
		l.log.Warn("redis refuses writes; the policies' on_failure decides", "answer", h.refusing.Answer)
	}
}

// accepted records that Redis accepted the writes of the pulse that was sent at the
// time sent.
func (h *health) accepted(sent time.Time, log *slog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refusing.Since.IsZero() || sent.Sub(h.refusedAt) < refusedFor {
		return
	}
	log.Info("redis accepts writes again", "after", time.Since(h.refusing.Since).Round(time.Millisecond).String())
	h.refusing = Refusal{}
}

// brief shortens an error reply for display and removes control characters.
func brief(answer string) string {
	const most = 160
	answer = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.TrimPrefix(answer, "-"), "?"))
	if len(answer) > most {
		answer = strings.ToValidUTF8(answer[:most], "") + "…"
	}
	return strings.TrimSpace(answer)
}
