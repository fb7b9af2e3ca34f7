DROP TABLE audit_head;
-- The table as it was before. What was written before the first edit gets the
-- revision of that one.
CREATE TABLE audit_log_new (
    id          TEXT NOT NULL CONSTRAINT audit_log_pkey PRIMARY KEY,
    at          TIMESTAMP NOT NULL,
    revision    BIGINT NOT NULL CONSTRAINT audit_log_revision CHECK (revision > 0),
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
    after_doc   TEXT
);
INSERT INTO audit_log_new (id, at, revision, actor_kind, actor_id, actor_name, request_id, address,
        tenant_id, action, object, object_name, before_doc, after_doc)
    SELECT id, at, max(revision, 1), actor_kind, actor_id, actor_name, request_id, address,
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
