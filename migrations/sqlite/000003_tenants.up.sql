-- Tenants and their API keys.

CREATE TABLE tenants (
    id                 TEXT NOT NULL CONSTRAINT tenants_pkey PRIMARY KEY
                       CONSTRAINT tenants_id_uuid CHECK (length(id) = 36),
    slug               TEXT NOT NULL CONSTRAINT tenants_slug_key UNIQUE
                       CONSTRAINT tenants_slug CHECK (length(slug) BETWEEN 1 AND 64),
    -- The short identity in counter keys, never used twice.
    number             BIGINT NOT NULL CONSTRAINT tenants_number_key UNIQUE
                       CONSTRAINT tenants_number CHECK (number BETWEEN 1 AND 4294967295),
    -- The hash tag under which all counters of the tenant lie.
    home               TEXT NOT NULL CONSTRAINT tenants_home CHECK (home <> ''),
    name               TEXT NOT NULL,
    status             TEXT NOT NULL CONSTRAINT tenants_status CHECK (status IN ('active', 'suspended')),
    plan_id            TEXT CONSTRAINT tenants_plan REFERENCES plans (id),
    -- The revision at which the tenant was put on its plan.
    plan_revision      BIGINT NOT NULL CONSTRAINT tenants_plan_revision CHECK (plan_revision > 0),
    time_zone          TEXT NOT NULL,
    billing_anchor_day BIGINT NOT NULL CONSTRAINT tenants_billing_anchor_day CHECK (billing_anchor_day BETWEEN 1 AND 31),
    no_policy          TEXT NOT NULL CONSTRAINT tenants_no_policy CHECK (no_policy IN ('allow', 'deny')),
    redact_values      BOOLEAN NOT NULL,
    -- Slug and name in lower case: the engines do not lower alike.
    search             TEXT NOT NULL,
    revision           BIGINT NOT NULL CONSTRAINT tenants_revision CHECK (revision > 0),
    created_at         TIMESTAMP NOT NULL,
    updated_at         TIMESTAMP NOT NULL
);
CREATE INDEX tenants_by_revision ON tenants (revision);
CREATE INDEX tenants_of_plan ON tenants (plan_id, id);

CREATE TABLE api_keys (
    id         TEXT NOT NULL CONSTRAINT api_keys_pkey PRIMARY KEY
               CONSTRAINT api_keys_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT NOT NULL CONSTRAINT api_keys_tenant REFERENCES tenants (id),
    name       TEXT NOT NULL,
    -- SHA-256 of the token, which is not kept.
    hash       BLOB NOT NULL CONSTRAINT api_keys_hash_key UNIQUE
               CONSTRAINT api_keys_hash CHECK (length(hash) = 32),
    hint       TEXT NOT NULL,
    -- Words with a blank between.
    scopes     TEXT NOT NULL,
    expires_at TIMESTAMP,
    -- NULL: not revoked; in the future: rotated, valid until then.
    revoked_at TIMESTAMP,
    created_at TIMESTAMP NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT api_keys_revision CHECK (revision > 0)
);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, id);
CREATE INDEX api_keys_by_revision ON api_keys (revision);
