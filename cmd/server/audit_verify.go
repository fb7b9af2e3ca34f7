package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/store"
)

// auditCommand is headgate audit. It reads the audit log directly from the database.
type auditCommand struct {
	Verify auditVerify `cmd:"" help:"Verify the chain of hashes of the audit log."`
}

// auditVerify is headgate audit verify. It verifies the chain of hashes and reports the first entry
// that was changed.
type auditVerify struct {
	localSettings
	Head []string `setting:"false" placeholder:"NUMBER:HASH" help:"An earlier head, which the chain must contain. May be repeated."`
}

// Help returns the text that --help shows after the flags.
func (auditVerify) Help() string {
	return "Every line carries a hash of itself and of the line before, and the database notes the last one. " +
		"Ends with 0 when all lines are as they were written, and with 1 and the first line that was changed, removed, moved or put in. " +
		"It only reads, and may run beside nodes that serve.\n\n" +
		"Lines from before the chain was introduced are only counted. Somebody who may write to the database can write a whole new chain: " +
		"serving nodes therefore log its head when they start, every hour, and when they stop (audit head). " +
		"Keep their logs elsewhere, and compare with --head."
}

func (a auditVerify) Run(ctx context.Context, p program, t cli.Terminal) error {
	var noted []audit.Head
	for _, text := range a.Head {
		head, err := audit.ParseHead(text)
		if err != nil {
			return usageError{fmt.Errorf("--head: %w", err)}
		}
		noted = append(noted, head)
	}
	var v audit.Verdict
	err := a.withStore(ctx, p, func(st *store.Store) (err error) {
		if err = currentSchema(ctx, st); err != nil {
			return err
		}
		head, err := st.AuditHead(ctx)
		if err != nil {
			return err
		}
		var seen atomic.Int64
		defer t.Progress("verifying lines", head.Seq, seen.Load)()
		v, err = st.VerifyAudit(ctx, audit.Verification{Noted: noted, Seen: seen.Store})
		return err
	})
	switch {
	case err != nil:
		return err
	case v.Broken != nil:
		return fmt.Errorf("the audit log was changed: %w", v.Broken)
	}
	text := fmt.Sprintf("the audit log is as it was written: %d lines, the last has the hash %s\n", v.Lines, v.Head.Hash) +
		fmt.Sprintf("note the head elsewhere, for --head: %s\n", v.Head)
	if n := v.Head.Outside; n > 0 {
		text += fmt.Sprintf("%d older lines are from before the chain, and only counted\n", n)
	}
	return a.Text(t, map[string]any{"lines": v.Lines, "older_lines": v.Head.Outside, "head": v.Head.String()}, text)
}
