package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/store"
)

// auditCommand looks at the audit log straight in the database.
type auditCommand struct {
	Verify auditVerify `cmd:"" help:"Hold every line of the audit log against its chain of hashes."`
}

// auditVerify names the first line that is not as it was written.
type auditVerify struct{ databaseSettings }

// Help is shown by headgate audit verify --help.
func (auditVerify) Help() string {
	return "Every line carries a hash of itself and of the line before, and the database notes the last one. " +
		"Ends with 0 when all lines are as they were written, and with 1 and the first line that was changed, removed, moved or put in. " +
		"It only reads, and may run beside nodes that serve.\n\n" +
		"Lines from before the chain was introduced are only counted. Somebody who may write to the database can write a whole new chain: " +
		"note the last line's number and hash elsewhere from time to time, and compare."
}

func (a auditVerify) Run(ctx context.Context, p program) error {
	return a.withStore(ctx, p, func(st *store.Store) error {
		schema, err := st.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		if !schema.Current() {
			return errors.New("the database's schema is not the one that this headgate works with: run headgate migrate")
		}
		v, err := st.VerifyAudit(ctx)
		if err != nil {
			return err
		}
		return p.printVerdict(v)
	})
}

func (p program) printVerdict(v audit.Verdict) error {
	if v.Broken != nil {
		return fmt.Errorf("the audit log is not as it was written: %w", v.Broken)
	}
	fmt.Fprintf(p.stdout, "the audit log is as it was written: %d lines, the last has the hash %s\n", v.Lines, v.Head.Hash)
	if n := v.Head.Outside; n > 0 {
		fmt.Fprintf(p.stdout, "%d older lines are from before the chain, and only counted\n", n)
	}
	return nil
}
