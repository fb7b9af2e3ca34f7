-- Tenants and their API keys.

CREATE TABLE tenants (
    id                 TEXT COLLATE "C" NOT NULL CONSTRAINT tenants_pkey PRIMARY KEY
                       CONSTRAINT tenants_id_uuid CHECK (length(id) = 36),
    slug               TEXT COLLATE "C" NOT NULL CONSTRAINT tenants_slug_key UNIQUE
                       CONSTRAINT tenants_slug CHECK (length(slug) BETWEEN 1 AND 64),
    number             BIGINT NOT NULL CONSTRAINT tenants_number_key UNIQUE
                       CONSTRAINT tenants_number CHECK (number BETWEEN 1 AND 4294967295),
    home               TEXT NOT NULL CONSTRAINT tenants_home CHECK (home <> ''),
    name               TEXT NOT NULL,
    status             TEXT COLLATE "C" NOT NULL CONSTRAINT tenants_status CHECK (status IN ('active', 'suspended')),
    plan_id            TEXT COLLATE "C" CONSTRAINT tenants_plan REFERENCES plans (id),
    plan_revision      BIGINT NOT NULL CONSTRAINT tenants_plan_revision CHECK (plan_revision > 0),
    time_zone          TEXT NOT NULL,
    billing_anchor_day BIGINT NOT NULL CONSTRAINT tenants_billing_anchor_day CHECK (billing_anchor_day BETWEEN 1 AND 31),
    no_policy          TEXT NOT NULL CONSTRAINT tenants_no_policy CHECK (no_policy IN ('allow', 'deny')),
    redact_values      BOOLEAN NOT NULL,
    search             TEXT NOT NULL,
    revision           BIGINT NOT NULL CONSTRAINT tenants_revision CHECK (revision > 0),
    created_at         TIMESTAMPTZ NOT NULL,
    updated_at         TIMESTAMPTZ NOT NULL
);
COMMENT ON COLUMN tenants.number IS 'The short identity in counter keys, never used twice.';
COMMENT ON COLUMN tenants.home IS 'The hash tag under which all counters of the tenant lie.';
COMMENT ON COLUMN tenants.plan_revision IS 'The revision at which the tenant was put on its plan.';
COMMENT ON COLUMN tenants.search IS 'Slug and name in lower case: the engines do not lower alike.';
CREATE INDEX tenants_by_revision ON tenants (revision);
CREATE INDEX tenants_of_plan ON tenants (plan_id, id);

CREATE TABLE api_keys (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT api_keys_pkey PRIMARY KEY
               CONSTRAINT api_keys_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" NOT NULL CONSTRAINT api_keys_tenant REFERENCES tenants (id),
    name       TEXT NOT NULL,
    hash       BYTEA NOT NULL CONSTRAINT api_keys_hash_key UNIQUE
               CONSTRAINT api_keys_hash CHECK (octet_length(hash) = 32),
    hint       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT api_keys_revision CHECK (revision > 0)
);
COMMENT ON COLUMN api_keys.hash IS 'SHA-256 of the token, which is not kept.';
COMMENT ON COLUMN api_keys.scopes IS 'Words with a blank between.';
COMMENT ON COLUMN api_keys.revoked_at IS 'NULL: not revoked; in the future: rotated, valid until then.';
CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, id);
CREATE INDEX api_keys_by_revision ON api_keys (revision);
