-- Each line of the audit log has the hash of the one before in its own, so that
-- a line that was changed, removed or put in can be found.
--
-- Lines that are there already stay outside the chain, and so do those of a
-- release that does not know it: seq and hash are NULL.

ALTER TABLE audit_log
    ADD COLUMN seq BIGINT CONSTRAINT audit_log_seq CHECK (seq > 0),
    ADD COLUMN hash BYTEA CONSTRAINT audit_log_hash CHECK (length(hash) = 32),
    ADD CONSTRAINT audit_log_chained CHECK ((seq IS NULL) = (hash IS NULL)),
    ADD CONSTRAINT audit_log_seq_key UNIQUE (seq);
COMMENT ON COLUMN audit_log.seq IS 'Place in the chain, from 1; NULL: outside it.';
COMMENT ON COLUMN audit_log.hash IS 'SHA-256 of the hash before and the line; audit/chain.go has the form.';

-- Lines without a change (a sign-in, a refused access) have the revision that
-- there is, which may be 0.
ALTER TABLE audit_log DROP CONSTRAINT audit_log_revision;
ALTER TABLE audit_log ADD CONSTRAINT audit_log_revision CHECK (revision >= 0);

CREATE TABLE audit_head (
    id      BIGINT NOT NULL CONSTRAINT audit_head_pkey PRIMARY KEY CONSTRAINT audit_head_one_row CHECK (id = 1),
    seq     BIGINT NOT NULL CONSTRAINT audit_head_seq CHECK (seq >= 0),
    hash    BYTEA NOT NULL CONSTRAINT audit_head_hash CHECK (length(hash) = 32),
    outside BIGINT NOT NULL CONSTRAINT audit_head_outside CHECK (outside >= 0)
);
COMMENT ON TABLE audit_head IS 'One row: the last line of the chain. Its lock makes those who write lines take turns.';
COMMENT ON COLUMN audit_head.outside IS 'How many lines there were before the chain.';
INSERT INTO audit_head (id, seq, hash, outside)
    SELECT 1, 0, decode(repeat('00', 32), 'hex'), count(*) FROM audit_log;

CREATE TRIGGER audit_log_not_truncated BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_only_added();
