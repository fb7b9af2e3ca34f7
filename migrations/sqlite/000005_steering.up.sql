-- What is set for one tenant beside its plan: overrides, lists and blocks.
--
-- They go with their tenant (ON DELETE CASCADE), so that a release that does not
-- know them can still delete one.

-- Other numbers for one policy of a tenant until expires_at. Rows never change.
CREATE TABLE overrides (
    id         TEXT NOT NULL CONSTRAINT overrides_pkey PRIMARY KEY
               CONSTRAINT overrides_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT NOT NULL CONSTRAINT overrides_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    -- Slug. The tenant's plan may no longer have it: then the row has no effect.
    policy     TEXT NOT NULL CONSTRAINT overrides_policy CHECK (length(policy) BETWEEN 1 AND 64),
    -- Empty: all keys of the tenant; else either value or prefix is set.
    attribute  TEXT NOT NULL,
    value      TEXT NOT NULL,
    prefix     TEXT NOT NULL,
    -- Thousandths; 0: limits say.
    factor     BIGINT NOT NULL CONSTRAINT overrides_factor CHECK (factor BETWEEN 0 AND 1000000),
    -- JSON; store/document.go has its form.
    limits     TEXT NOT NULL,
    reason     TEXT NOT NULL CONSTRAINT overrides_reason CHECK (reason <> ''),
    expires_at TIMESTAMP NOT NULL,
    created_at TIMESTAMP NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT overrides_revision CHECK (revision > 0),
    CONSTRAINT overrides_whom CHECK (
        CASE WHEN attribute = '' THEN value = '' AND prefix = '' ELSE (value = '') <> (prefix = '') END),
    CONSTRAINT overrides_numbers CHECK ((factor > 0) = (limits = '[]'))
);
CREATE INDEX overrides_of_tenant ON overrides (tenant_id, id);
CREATE INDEX overrides_by_revision ON overrides (revision);
CREATE INDEX overrides_by_end ON overrides (expires_at);

-- Values that never pass (deny) or always (allow). Rows never change.
CREATE TABLE list_entries (
    id         TEXT NOT NULL CONSTRAINT list_entries_pkey PRIMARY KEY
               CONSTRAINT list_entries_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT NOT NULL CONSTRAINT list_entries_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    list       TEXT NOT NULL CONSTRAINT list_entries_list CHECK (list IN ('deny', 'allow')),
    attribute  TEXT NOT NULL CONSTRAINT list_entries_attribute CHECK (attribute <> ''),
    -- Exact; for ip an address or a network in canonical form.
    value      TEXT NOT NULL CONSTRAINT list_entries_value CHECK (value <> ''),
    reason     TEXT NOT NULL,
    -- The value in lower case: the engines do not lower alike.
    search     TEXT NOT NULL,
    -- NULL: without an end.
    expires_at TIMESTAMP,
    created_at TIMESTAMP NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT list_entries_revision CHECK (revision > 0),
    CONSTRAINT list_entries_identity UNIQUE (tenant_id, list, attribute, value)
);
CREATE INDEX list_entries_of_tenant ON list_entries (tenant_id, id);
CREATE INDEX list_entries_by_revision ON list_entries (revision);
CREATE INDEX list_entries_by_end ON list_entries (expires_at);

-- One key of one policy that is refused until expires_at. Rows never change.
CREATE TABLE blocks (
    id         TEXT NOT NULL CONSTRAINT blocks_pkey PRIMARY KEY
               CONSTRAINT blocks_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT NOT NULL CONSTRAINT blocks_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    policy     TEXT NOT NULL CONSTRAINT blocks_policy CHECK (length(policy) BETWEEN 1 AND 64),
    -- JSON: the values of count_by by attribute name; store/document.go has its
    -- form.
    key_values TEXT NOT NULL,
    reason     TEXT NOT NULL CONSTRAINT blocks_reason CHECK (reason <> ''),
    expires_at TIMESTAMP NOT NULL,
    created_at TIMESTAMP NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT blocks_revision CHECK (revision > 0)
);
CREATE INDEX blocks_of_tenant ON blocks (tenant_id, id);
CREATE INDEX blocks_by_revision ON blocks (revision);
CREATE INDEX blocks_by_end ON blocks (expires_at);

-- The revision at which an override of a policy last began or ended for a
-- tenant. Outlives the override.
CREATE TABLE policy_changes (
    tenant_id TEXT NOT NULL CONSTRAINT policy_changes_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    policy    TEXT NOT NULL,
    revision  BIGINT NOT NULL CONSTRAINT policy_changes_revision CHECK (revision > 0),
    CONSTRAINT policy_changes_pkey PRIMARY KEY (tenant_id, policy)
);
CREATE INDEX policy_changes_by_revision ON policy_changes (revision);

-- Tombstones of more kinds: SQLite cannot change a CHECK, so the table is made
-- anew with the same rows.
CREATE TABLE tombstones_new (
    revision  BIGINT NOT NULL CONSTRAINT tombstones_revision CHECK (revision > 0),
    kind      TEXT NOT NULL CONSTRAINT tombstones_kind
              CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key', 'override', 'list_entry', 'block')),
    object_id TEXT NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (revision, kind, object_id)
);
INSERT INTO tombstones_new (revision, kind, object_id) SELECT revision, kind, object_id FROM tombstones;
DROP TABLE tombstones;
ALTER TABLE tombstones_new RENAME TO tombstones;
