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

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// NewLimiter makes a Limiter with a clock, in microseconds since the epoch, and
// without any state. cleanup is called once after the last use, and removes
// what the Limiter may have kept elsewhere.
type NewLimiter func(now func() int64) (l enforcement.Limiter, cleanup func(), err error)

// Config of Run and RunOne.
type Config struct {
	// NewLimiter makes the limiter that decides; required.
	NewLimiter NewLimiter
	// MaxLine is how many bytes a line of Run may have; default 16 MiB.
	MaxLine int
}

// Bounds of RunOne, whose callers come through the network.
const (
	// MaxOneBytes of a scenario.
	MaxOneBytes = 64 << 10
	// MaxOneRepetitions of all steps together.
	MaxOneRepetitions = 10_000
	// maxOneEvaluations is how many limits they may ask together.
	maxOneEvaluations = 20_000
)

// A stage is a limiter on which scenarios are played, each as a tenant of its
// own, with the clock that they turn.
type stage struct {
	limiter enforcement.Limiter
	cleanup func()
	now     atomic.Int64
	tenant  uint32
	// counters is an upper bound of how many the limiter keeps.
	counters int

	charges  []enforcement.Charge
	requests [chunk]enforcement.Request
	outcomes [chunk]enforcement.Outcome
}

// After so many scenarios or counters a stage is replaced, so that a run of many
// needs no more memory than one of few.
const (
	stageScenarios = 1_000
	stageCounters  = 200_000
)

func newStage(cfg Config) (*stage, error) {
	s := &stage{}
	var err error
	if s.limiter, s.cleanup, err = cfg.NewLimiter(s.now.Load); err != nil {
		return nil, fmt.Errorf("make a limiter: %w", err)
	}
	return s, nil
}

// Run plays the scenarios of r, one a line, and writes one line for each to w,
// in order; blank lines are passed over. A line that cannot be played gives an
// error line, and the run goes on. Its own error is of r, w, ctx or NewLimiter.
// When ctx ends while r has nothing to read, Run returns without waiting for r.
func Run(ctx context.Context, r io.Reader, w io.Writer, cfg Config) (err error) {
	if cfg.MaxLine <= 0 {
		cfg.MaxLine = 16 << 20
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := bufio.NewWriter(w)
	defer func() { err = errors.Join(err, out.Flush()) }()
	var s *stage
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
			answer := s.line(ctx, in, cfg.MaxLine)
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := out.Write(answer); err != nil {
				return fmt.Errorf("write an answer: %w", err)
			}
		}
		if in.last { // whoever waits for an answer before the next line gets it
			if err := out.Flush(); err != nil {
				return fmt.Errorf("write an answer: %w", err)
			}
		}
		if in.err != nil {
			return nil
		}
	}
}

// orNew gives the stage, or a new one in place of none or of a worn one.
func (s *stage) orNew(cfg Config) (*stage, error) {
	if s != nil && s.tenant < stageScenarios && s.counters < stageCounters {
		return s, nil
	}
	if s != nil {
		s.cleanup()
	}
	return newStage(cfg)
}

// line plays one line of Run.
func (s *stage) line(ctx context.Context, in input, most int) line {
	if in.tooLong {
		return failed("", false, problem.New(problem.TooLarge, "a scenario may have at most %d bytes", most))
	}
	scenario, idKnown, err := read(in.text)
	if err != nil {
		return refuse(in.text, scenario.id, idKnown, err)
	}
	answer, _ := s.scenario(ctx, &scenario, idKnown) // the error is in the answer
	return answer
}

// scenario plays a scenario that was read.
func (s *stage) scenario(ctx context.Context, scenario *scenario, idKnown bool) (line, error) {
	answers, err := s.play(ctx, scenario)
	if err != nil {
		return failed(scenario.id, idKnown, err), err
	}
	return line(nil).scenario(scenario.id, answers), nil
}

// refuse returns the error line for a text that cannot be read. If the id is not
// known yet, refuse looks for it in the whole text, because it may come after the
// fault.
func refuse(text []byte, id string, idKnown bool, err error) line {
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

// RunOne plays one scenario, for a caller from the network: its size and its
// work are bounded. The answer is a line of JSON in every case. The error, a
// *problem.Problem or that of ctx or NewLimiter, tells that it is an error line.
func RunOne(ctx context.Context, text []byte, cfg Config) ([]byte, error) {
	if len(text) > MaxOneBytes {
		err := problem.New(problem.TooLarge, "a scenario may have at most %d bytes", MaxOneBytes)
		return failed("", false, err), err
	}
	scenario, idKnown, err := read(text)
	if err != nil {
		return refuse(text, scenario.id, idKnown, err), err
	}
	if at, ok := scenario.within(MaxOneRepetitions, maxOneEvaluations); !ok {
		err := &problem.Problem{Kind: problem.Malformed, Message: "the scenario is too much work", Fields: []problem.Field{{
			Pointer: "/steps/" + strconv.Itoa(at) + "/repeat",
			Message: fmt.Sprintf("the steps may repeat %d times together, and ask %d limits; headgate simulate has no such bound",
				MaxOneRepetitions, maxOneEvaluations),
		}}}
		return failed(scenario.id, idKnown, err), err
	}
	s, err := newStage(cfg)
	if err != nil {
		return failed(scenario.id, idKnown, problem.New(problem.Unavailable, "no limiter can be made")), err
	}
	defer s.cleanup()
	return s.scenario(ctx, &scenario, idKnown)
}

// An input is a line that was read.
type input struct {
	text    []byte
	tooLong bool
	last    bool // nothing more was there yet
	err     error
}

// readLines sends the lines of r until its end or an error, which comes with
// the last of them.
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

// readLine reads up to the next line feed or the end. A line longer than most
// is read to its end and forgotten.
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
