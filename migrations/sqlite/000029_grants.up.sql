-- Units that one limit of a tenant allows beyond its quota, once, until expires_at. What is left of
-- them is a durable counter. Rows never change.
CREATE TABLE grants (
    id         TEXT NOT NULL CONSTRAINT grants_pkey PRIMARY KEY
               CONSTRAINT grants_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT NOT NULL CONSTRAINT grants_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    policy     TEXT NOT NULL CONSTRAINT grants_policy CHECK (length(policy) BETWEEN 1 AND 64),
    limit_name TEXT NOT NULL CONSTRAINT grants_limit CHECK (length(limit_name) BETWEEN 1 AND 32),
    -- JSON: values of count_by by attribute name, as in blocks. Empty: all keys share the units.
    key_values TEXT NOT NULL,
    units      BIGINT NOT NULL CONSTRAINT grants_units CHECK (units BETWEEN 1 AND 1000000000000),
    reason     TEXT NOT NULL CONSTRAINT grants_reason CHECK (reason <> ''),
    expires_at TIMESTAMP NOT NULL,
    created_at TIMESTAMP NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT grants_revision CHECK (revision > 0)
);
CREATE INDEX grants_of_tenant ON grants (tenant_id, id);
CREATE INDEX grants_by_revision ON grants (revision);
CREATE INDEX grants_by_end ON grants (expires_at);

-- Tombstones of one more kind: SQLite cannot change a CHECK, so the table is made anew with the same rows.
CREATE TABLE tombstones_new (
    revision  BIGINT NOT NULL CONSTRAINT tombstones_revision CHECK (revision > 0),
    kind      TEXT NOT NULL CONSTRAINT tombstones_kind
              CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key', 'override', 'list_entry', 'block', 'grant')),
    object_id TEXT NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (revision, kind, object_id)
);
INSERT INTO tombstones_new (revision, kind, object_id) SELECT revision, kind, object_id FROM tombstones;
DROP TABLE tombstones;
ALTER TABLE tombstones_new RENAME TO tombstones;
