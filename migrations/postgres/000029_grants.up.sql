-- One-off top-ups of a limit of one tenant. What is left of them is a durable counter.
CREATE TABLE grants (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT grants_pkey PRIMARY KEY
               CONSTRAINT grants_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" NOT NULL CONSTRAINT grants_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    policy     TEXT COLLATE "C" NOT NULL CONSTRAINT grants_policy CHECK (length(policy) BETWEEN 1 AND 64),
    limit_name TEXT COLLATE "C" NOT NULL CONSTRAINT grants_limit CHECK (length(limit_name) BETWEEN 1 AND 32),
    key_values TEXT NOT NULL,
    units      BIGINT NOT NULL CONSTRAINT grants_units CHECK (units BETWEEN 1 AND 1000000000000),
    reason     TEXT NOT NULL CONSTRAINT grants_reason CHECK (reason <> ''),
    expires_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT grants_revision CHECK (revision > 0)
);
COMMENT ON TABLE grants IS 'Units that one limit of a tenant allows beyond its quota, once, until expires_at. Rows never change.';
COMMENT ON COLUMN grants.key_values IS 'JSON: values of count_by by attribute name, as in blocks. Empty: all keys share the units.';
CREATE INDEX grants_of_tenant ON grants (tenant_id, id);
CREATE INDEX grants_by_revision ON grants (revision);
CREATE INDEX grants_by_end ON grants (expires_at);

ALTER TABLE tombstones DROP CONSTRAINT tombstones_kind;
ALTER TABLE tombstones ADD CONSTRAINT tombstones_kind
    CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key', 'override', 'list_entry', 'block', 'grant'));
