package simulation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// NewLimiter returns a new Limiter without counters. now is its clock, in microseconds since
// the epoch. After the last use of the Limiter, the caller must call cleanup once. cleanup
// deletes what the Limiter has stored outside of this process, for example in Redis.
type NewLimiter func(now func() int64) (l enforcement.Limiter, cleanup func(), err error)

// Config has the settings of Run and RunOne.
type Config struct {
	// NewLimiter creates the limiter that decides. Required.
	NewLimiter NewLimiter
	// MaxLine is the maximum length of an input line of Run, in bytes. Default: 16 MiB.
	MaxLine int
}

// Bounds of a scenario for RunOne. They are low, because such scenarios come from clients over
// the network.
const (
	// MaxOneBytes is the maximum size of a scenario in bytes.
	MaxOneBytes = 64 << 10
	// MaxOneRepetitions is the maximum sum of the repetitions of all steps.
	MaxOneRepetitions = 10_000
	// maxOneEvaluations is the maximum sum, over all steps, of the number of repetitions times
	// the number of limits.
	maxOneEvaluations = 20_000
)

// A runner plays scenarios one after the other on one limiter. It sets the clock of the limiter.
// Each scenario has its own tenant number, so that no two scenarios share a counter.
type runner struct {
	limiter enforcement.Limiter
	engine  *enforcement.Engine // decides with the limiter of the runner and the same clock
	cleanup func()
	now     atomic.Int64
	tenant  uint32
	// counters is an upper bound of the number of counters in the limiter.
	counters int
	lease    uint64 // number of the last lease that was created for a step without a lease name

	charges  []enforcement.Charge
	requests [chunk]enforcement.Request
	outcomes [chunk]enforcement.Outcome
}

// After this number of scenarios or counters, Run creates a new runner, so that the memory does not
// grow with the number of scenarios.
const (
	runnerScenarios = 1_000
	runnerCounters  = 200_000
)

func newRunner(cfg Config) (*runner, error) {
	s := &runner{}
	var err error
	if s.limiter, s.cleanup, err = cfg.NewLimiter(s.now.Load); err != nil {
		return nil, fmt.Errorf("make a limiter: %w", err)
	}
	s.engine = enforcement.NewEngine(s.limiter, enforcement.Config{
		OutageJournalKeys: -1, Now: func() time.Time { return time.UnixMicro(s.now.Load()) },
	})
	return s, nil
}

// Run reads scenarios from r, one per line. It plays them and writes one output line for each
// to w, in the same order. It ignores blank lines. If a scenario cannot be played, Run writes
// an error line and continues.
//
// Run returns an error of r, w, ctx or NewLimiter. If there were error lines, it returns a
// Failures after the last line. If ctx ends while Run waits for r, Run returns at once.
func Run(ctx context.Context, r io.Reader, w io.Writer, cfg Config) (err error) {
	if cfg.MaxLine <= 0 {
		cfg.MaxLine = 16 << 20
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := bufio.NewWriter(w)
	defer func() { err = errors.Join(err, out.Flush()) }()
	var s *runner
	var failures Failures
	defer func() {
		if s != nil {
			s.cleanup()
		}
	}()
	lines := make(chan input)
	go readLines(ctx, r, cfg.MaxLine, lines)
	for {
		var in input
		select {
		case in = <-lines:
		case <-ctx.Done():
			return ctx.Err()
		}
		if in.err != nil && !errors.Is(in.err, io.EOF) {
			return fmt.Errorf("read a scenario: %w", in.err)
		}
		if in.tooLong || len(bytes.TrimSpace(in.text)) > 0 {
			if s, err = s.orNew(cfg); err != nil {
				return err
			}
			answer, played := s.line(ctx, in, cfg.MaxLine)
			if !played {
				failures++
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := out.Write(answer); err != nil {
				return fmt.Errorf("write an answer: %w", err)
			}
		}
		if in.last { // no more input is available now, and the client may wait for the lines before it sends more
			if err := out.Flush(); err != nil {
				return fmt.Errorf("write an answer: %w", err)
			}
		}
		if in.err != nil {
			if failures > 0 {
				return failures
			}
			return nil
		}
	}
}

// Failures is the error of Run if scenarios could not be played. Its value is the number of
// these scenarios.
type Failures int

func (f Failures) Error() string {
	return fmt.Sprintf("%d of the scenarios could not be played: see the lines with an error", int(f))
}

// orNew returns s, or a new runner if s is nil or has played enough scenarios.
func (s *runner) orNew(cfg Config) (*runner, error) {
	if s != nil && s.tenant < runnerScenarios && s.counters < runnerCounters {
		return s, nil
	}
	if s != nil {
		s.cleanup()
	}
	return newRunner(cfg)
}

// line plays the scenario in one input line and returns the output line. played is false if the
// output line is an error line. most is the maximum length of an input line in bytes.
func (s *runner) line(ctx context.Context, in input, most int) (answer line, played bool) {
	if in.tooLong {
		return failed("", false, problem.New(problem.TooLarge, "a scenario may have at most %d bytes", most)), false
	}
	scenario, idKnown, err := read(in.text)
	if err != nil {
		return unreadable(in.text, scenario.id, idKnown, err), false
	}
	answer, err = s.scenario(ctx, &scenario, idKnown) // the returned line contains the error
	return answer, err == nil
}

// scenario plays a decoded scenario and returns the output line.
func (s *runner) scenario(ctx context.Context, scenario *scenario, idKnown bool) (line, error) {
	answers, err := s.play(ctx, scenario)
	if err != nil {
		return failed(scenario.id, idKnown, err), err
	}
	return line(nil).scenario(scenario.id, answers), nil
}

// unreadable returns the error line for a text that is not a valid scenario. If the id comes after
// the error, it was not read, and idKnown is false. unreadable then looks for the id in the whole
// text.
func unreadable(text []byte, id string, idKnown bool, err error) line {
	var p *problem.Problem
	if errors.As(err, &p) && len(p.Fields) > 0 && p.Fields[0].Pointer == "/id" {
		return failed("", false, err)
	}
	if !idKnown {
		var only struct {
			ID *string `json:"id"`
		}
		if json.Unmarshal(text, &only) == nil && only.ID != nil {
			id, idKnown = *only.ID, true
		}
	}
	return failed(id, idKnown, err)
}

// RunOne plays one scenario that a client has sent. It bounds the size of the scenario and the work for it.
// It always returns a line of JSON. If RunOne also returns an error, the line is an error line, and the error
// is a *problem.Problem, or an error of ctx or NewLimiter.
func RunOne(ctx context.Context, text []byte, cfg Config) ([]byte, error) {
	if len(text) > MaxOneBytes {
		err := problem.New(problem.TooLarge, "a scenario may have at most %d bytes", MaxOneBytes)
		return failed("", false, err), err
	}
	scenario, idKnown, err := read(text)
	if err != nil {
		return unreadable(text, scenario.id, idKnown, err), err
	}
	if at, ok := scenario.within(MaxOneRepetitions, maxOneEvaluations); !ok {
		err := &problem.Problem{Kind: problem.Malformed, Message: "the scenario needs too many decisions", Fields: []problem.Field{{
			Pointer: "/steps/" + strconv.Itoa(at) + "/repeat",
			Message: fmt.Sprintf("all steps together may have at most %d repetitions and check %d limits; headgate simulate has no such bound",
				MaxOneRepetitions, maxOneEvaluations),
		}}}
		return failed(scenario.id, idKnown, err), err
	}
	s, err := newRunner(cfg)
	if err != nil {
		return failed(scenario.id, idKnown, problem.New(problem.Unavailable, "the limiter for the simulation cannot be created")), err
	}
	defer s.cleanup()
	return s.scenario(ctx, &scenario, idKnown)
}

// An input is one line that readLines has read.
type input struct {
	text    []byte
	tooLong bool
	last    bool // set if no further input was available when the line was read
	err     error
}

// readLines reads r and sends its lines to the channel, until the end of r or an error. The
// last input contains this error, which is io.EOF at the end.
func readLines(ctx context.Context, r io.Reader, most int, lines chan<- input) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	for {
		in := readLine(buffered, most)
		select {
		case lines <- in:
		case <-ctx.Done():
			return
		}
		if in.err != nil {
			return
		}
	}
}

// readLine reads one line, up to a line feed or the end of the input. If the line has more than
// most bytes, readLine reads the whole line, discards its text, and sets tooLong.
func readLine(r *bufio.Reader, most int) (in input) {
	for {
		part, err := r.ReadSlice('\n')
		if !in.tooLong {
			in.text = append(in.text, part...)
		}
		if len(bytes.TrimSuffix(in.text, []byte("\n"))) > most {
			in.text, in.tooLong = nil, true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			in.text = bytes.TrimSuffix(in.text, []byte("\n"))
			in.last, in.err = r.Buffered() == 0, err
			return in
		}
	}
}
