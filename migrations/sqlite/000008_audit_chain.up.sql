-- Each line of the audit log has the hash of the one before in its own, so that
-- a line that was changed, removed or put in can be found.
--
-- Lines that are there already stay outside the chain, and so do those of a
-- release that does not know it: seq and hash are NULL.
--
-- Lines without a change (a sign-in, a refused access) have the revision that
-- there is, which may be 0: SQLite cannot change a CHECK, so the table is made
-- anew.
CREATE TABLE audit_log_new (
    id          TEXT NOT NULL CONSTRAINT audit_log_pkey PRIMARY KEY,
    at          TIMESTAMP NOT NULL,
    revision    BIGINT NOT NULL CONSTRAINT audit_log_revision CHECK (revision >= 0),
    actor_kind  TEXT NOT NULL CONSTRAINT audit_log_actor CHECK (actor_kind <> ''),
    actor_id    TEXT NOT NULL,
    actor_name  TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    address     TEXT NOT NULL,
    tenant_id   TEXT,
    action      TEXT NOT NULL CONSTRAINT audit_log_action CHECK (action <> ''),
    object      TEXT NOT NULL,
    object_name TEXT NOT NULL,
    before_doc  TEXT,
    after_doc   TEXT,
    -- Place in the chain, from 1; NULL: outside it.
    seq         BIGINT CONSTRAINT audit_log_seq_key UNIQUE CONSTRAINT audit_log_seq CHECK (seq > 0),
    -- SHA-256 of the hash before and the line; audit/chain.go has the form.
    hash        BLOB CONSTRAINT audit_log_hash CHECK (length(hash) = 32),
    CONSTRAINT audit_log_chained CHECK ((seq IS NULL) = (hash IS NULL))
);
INSERT INTO audit_log_new (id, at, revision, actor_kind, actor_id, actor_name, request_id, address,
        tenant_id, action, object, object_name, before_doc, after_doc)
    SELECT id, at, revision, actor_kind, actor_id, actor_name, request_id, address,
        tenant_id, action, object, object_name, before_doc, after_doc
    FROM audit_log;
DROP TABLE audit_log;
ALTER TABLE audit_log_new RENAME TO audit_log;
CREATE INDEX audit_log_order ON audit_log (revision, id);
CREATE INDEX audit_log_of_tenant ON audit_log (tenant_id, revision, id);
CREATE INDEX audit_log_of_object ON audit_log (object, revision, id);
CREATE INDEX audit_log_of_action ON audit_log (action, revision, id);

CREATE TRIGGER audit_log_not_updated BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log is only added to');
END;
CREATE TRIGGER audit_log_not_deleted BEFORE DELETE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log is only added to');
END;
-- INSERT OR REPLACE removes rows without asking the trigger before.
CREATE TRIGGER audit_log_not_replaced BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log WHERE id = NEW.id OR seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'audit_log is only added to');
END;

-- One row: the last line of the chain. Its lock makes those who write lines take
-- turns.
CREATE TABLE audit_head (
    id      BIGINT NOT NULL CONSTRAINT audit_head_pkey PRIMARY KEY CONSTRAINT audit_head_one_row CHECK (id = 1),
    seq     BIGINT NOT NULL CONSTRAINT audit_head_seq CHECK (seq >= 0),
    hash    BLOB NOT NULL CONSTRAINT audit_head_hash CHECK (length(hash) = 32),
    -- How many lines there were before the chain.
    outside BIGINT NOT NULL CONSTRAINT audit_head_outside CHECK (outside >= 0)
);
INSERT INTO audit_head (id, seq, hash, outside)
    SELECT 1, 0, zeroblob(32), count(*) FROM audit_log;
