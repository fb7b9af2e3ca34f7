-- What is set for one tenant beside its plan: overrides, lists and blocks.
--
-- They go with their tenant (ON DELETE CASCADE), so that a release that does not
-- know them can still delete one.

CREATE TABLE overrides (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT overrides_pkey PRIMARY KEY
               CONSTRAINT overrides_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" NOT NULL CONSTRAINT overrides_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    policy     TEXT COLLATE "C" NOT NULL CONSTRAINT overrides_policy CHECK (length(policy) BETWEEN 1 AND 64),
    attribute  TEXT COLLATE "C" NOT NULL,
    value      TEXT COLLATE "C" NOT NULL,
    prefix     TEXT COLLATE "C" NOT NULL,
    factor     BIGINT NOT NULL CONSTRAINT overrides_factor CHECK (factor BETWEEN 0 AND 1000000),
    limits     TEXT NOT NULL,
    reason     TEXT NOT NULL CONSTRAINT overrides_reason CHECK (reason <> ''),
    expires_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT overrides_revision CHECK (revision > 0),
    CONSTRAINT overrides_whom CHECK (
        CASE WHEN attribute = '' THEN value = '' AND prefix = '' ELSE (value = '') <> (prefix = '') END),
    CONSTRAINT overrides_numbers CHECK ((factor > 0) = (limits = '[]'))
);
COMMENT ON TABLE overrides IS 'Other numbers for one policy of a tenant until expires_at. Rows never change.';
COMMENT ON COLUMN overrides.policy IS 'Slug. The tenant''s plan may no longer have it: then the row has no effect.';
COMMENT ON COLUMN overrides.attribute IS 'Empty: all keys of the tenant; else either value or prefix is set.';
COMMENT ON COLUMN overrides.factor IS 'Thousandths; 0: limits say.';
COMMENT ON COLUMN overrides.limits IS 'JSON; store/document.go has its form.';
CREATE INDEX overrides_of_tenant ON overrides (tenant_id, id);
CREATE INDEX overrides_by_revision ON overrides (revision);
CREATE INDEX overrides_by_end ON overrides (expires_at);

CREATE TABLE list_entries (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT list_entries_pkey PRIMARY KEY
               CONSTRAINT list_entries_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" NOT NULL CONSTRAINT list_entries_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    list       TEXT COLLATE "C" NOT NULL CONSTRAINT list_entries_list CHECK (list IN ('deny', 'allow')),
    attribute  TEXT COLLATE "C" NOT NULL CONSTRAINT list_entries_attribute CHECK (attribute <> ''),
    value      TEXT COLLATE "C" NOT NULL CONSTRAINT list_entries_value CHECK (value <> ''),
    reason     TEXT NOT NULL,
    search     TEXT NOT NULL,
    expires_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT list_entries_revision CHECK (revision > 0),
    CONSTRAINT list_entries_identity UNIQUE (tenant_id, list, attribute, value)
);
COMMENT ON TABLE list_entries IS 'Values that never pass (deny) or always (allow). Rows never change.';
COMMENT ON COLUMN list_entries.value IS 'Exact; for ip an address or a network in canonical form.';
COMMENT ON COLUMN list_entries.search IS 'The value in lower case: the engines do not lower alike.';
COMMENT ON COLUMN list_entries.expires_at IS 'NULL: without an end.';
CREATE INDEX list_entries_of_tenant ON list_entries (tenant_id, id);
CREATE INDEX list_entries_by_revision ON list_entries (revision);
CREATE INDEX list_entries_by_end ON list_entries (expires_at);

CREATE TABLE blocks (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT blocks_pkey PRIMARY KEY
               CONSTRAINT blocks_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" NOT NULL CONSTRAINT blocks_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    policy     TEXT COLLATE "C" NOT NULL CONSTRAINT blocks_policy CHECK (length(policy) BETWEEN 1 AND 64),
    key_values TEXT NOT NULL,
    reason     TEXT NOT NULL CONSTRAINT blocks_reason CHECK (reason <> ''),
    expires_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT blocks_revision CHECK (revision > 0)
);
COMMENT ON TABLE blocks IS 'One key of one policy that is refused until expires_at. Rows never change.';
COMMENT ON COLUMN blocks.key_values IS 'JSON: the values of count_by by attribute name; store/document.go has its form.';
CREATE INDEX blocks_of_tenant ON blocks (tenant_id, id);
CREATE INDEX blocks_by_revision ON blocks (revision);
CREATE INDEX blocks_by_end ON blocks (expires_at);

CREATE TABLE policy_changes (
    tenant_id TEXT COLLATE "C" NOT NULL CONSTRAINT policy_changes_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    policy    TEXT COLLATE "C" NOT NULL,
    revision  BIGINT NOT NULL CONSTRAINT policy_changes_revision CHECK (revision > 0),
    CONSTRAINT policy_changes_pkey PRIMARY KEY (tenant_id, policy)
);
COMMENT ON TABLE policy_changes IS 'The revision at which an override of a policy last began or ended for a tenant. Outlives the override.';
CREATE INDEX policy_changes_by_revision ON policy_changes (revision);

ALTER TABLE tombstones DROP CONSTRAINT tombstones_kind;
ALTER TABLE tombstones ADD CONSTRAINT tombstones_kind
    CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key', 'override', 'list_entry', 'block'));
