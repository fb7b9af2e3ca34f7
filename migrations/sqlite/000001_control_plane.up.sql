-- What every edit touches: the revision, the audit log, tombstones, settings.

-- One row: how many edits there were. Its lock makes edits take turns, so
-- revisions commit in order.
CREATE TABLE revision (
    id BIGINT NOT NULL CONSTRAINT revision_pkey PRIMARY KEY CONSTRAINT revision_one_row CHECK (id = 1),
    n  BIGINT NOT NULL CONSTRAINT revision_n CHECK (n >= 0)
);
INSERT INTO revision (id, n) VALUES (1, 0);

-- The last number given out of each kind; numbers are never given twice, also
-- after a deletion.
CREATE TABLE counters (
    name TEXT NOT NULL CONSTRAINT counters_pkey PRIMARY KEY,
    n    BIGINT NOT NULL CONSTRAINT counters_n CHECK (n BETWEEN 0 AND 4294967295)
);
INSERT INTO counters (name, n) VALUES ('cell', 0), ('tenant', 0);

-- What was removed, and at which revision: nodes that load only what changed
-- learn of removals here.
CREATE TABLE tombstones (
    revision  BIGINT NOT NULL CONSTRAINT tombstones_revision CHECK (revision > 0),
    kind      TEXT NOT NULL CONSTRAINT tombstones_kind CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key')),
    object_id TEXT NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (revision, kind, object_id)
);

-- Small named documents of the operator.
CREATE TABLE settings (
    name       TEXT NOT NULL CONSTRAINT settings_pkey PRIMARY KEY,
    value      TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT settings_revision CHECK (revision > 0),
    updated_at TIMESTAMP NOT NULL
);

-- Who changed what. Lines are only added; they outlive what they tell of, so
-- nothing is referenced.
CREATE TABLE audit_log (
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
