-- What every edit touches: the revision, the audit log, tombstones, settings.
--
-- Names are compared by their bytes (COLLATE "C"), as SQLite does, so that both
-- engines list in one order.

CREATE TABLE revision (
    id BIGINT NOT NULL CONSTRAINT revision_pkey PRIMARY KEY CONSTRAINT revision_one_row CHECK (id = 1),
    n  BIGINT NOT NULL CONSTRAINT revision_n CHECK (n >= 0)
);
COMMENT ON TABLE revision IS 'One row: how many edits there were. Its lock makes edits take turns, so revisions commit in order.';
INSERT INTO revision (id, n) VALUES (1, 0);

CREATE TABLE counters (
    name TEXT COLLATE "C" NOT NULL CONSTRAINT counters_pkey PRIMARY KEY,
    n    BIGINT NOT NULL CONSTRAINT counters_n CHECK (n BETWEEN 0 AND 4294967295)
);
COMMENT ON TABLE counters IS 'The last number given out of each kind; numbers are never given twice, also after a deletion.';
INSERT INTO counters (name, n) VALUES ('cell', 0), ('tenant', 0);

CREATE TABLE tombstones (
    revision  BIGINT NOT NULL CONSTRAINT tombstones_revision CHECK (revision > 0),
    kind      TEXT COLLATE "C" NOT NULL CONSTRAINT tombstones_kind CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key')),
    object_id TEXT COLLATE "C" NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (revision, kind, object_id)
);
COMMENT ON TABLE tombstones IS 'What was removed, and at which revision: nodes that load only what changed learn of removals here.';

CREATE TABLE settings (
    name       TEXT COLLATE "C" NOT NULL CONSTRAINT settings_pkey PRIMARY KEY,
    value      TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT settings_revision CHECK (revision > 0),
    updated_at TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE settings IS 'Small named documents of the operator.';

CREATE TABLE audit_log (
    id          TEXT COLLATE "C" NOT NULL CONSTRAINT audit_log_pkey PRIMARY KEY,
    at          TIMESTAMPTZ NOT NULL,
    revision    BIGINT NOT NULL CONSTRAINT audit_log_revision CHECK (revision > 0),
    actor_kind  TEXT NOT NULL CONSTRAINT audit_log_actor CHECK (actor_kind <> ''),
    actor_id    TEXT NOT NULL,
    actor_name  TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    address     TEXT NOT NULL,
    tenant_id   TEXT COLLATE "C",
    action      TEXT COLLATE "C" NOT NULL CONSTRAINT audit_log_action CHECK (action <> ''),
    object      TEXT COLLATE "C" NOT NULL,
    object_name TEXT NOT NULL,
    before_doc  TEXT,
    after_doc   TEXT
);
COMMENT ON TABLE audit_log IS 'Who changed what. Lines are only added; they outlive what they tell of, so nothing is referenced.';
CREATE INDEX audit_log_order ON audit_log (revision, id);
CREATE INDEX audit_log_of_tenant ON audit_log (tenant_id, revision, id);
CREATE INDEX audit_log_of_object ON audit_log (object, revision, id);
CREATE INDEX audit_log_of_action ON audit_log (action, revision, id);

CREATE FUNCTION audit_log_only_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is only added to' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER audit_log_only_added BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_only_added();
