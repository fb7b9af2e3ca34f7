CREATE TABLE operator_keys (
    id         TEXT NOT NULL CONSTRAINT operator_keys_pkey PRIMARY KEY
               CONSTRAINT operator_keys_id_uuid CHECK (length(id) = 36),
    name       TEXT NOT NULL,
    -- SHA-256 of the token, which is not kept.
    hash       BLOB NOT NULL CONSTRAINT operator_keys_hash_key UNIQUE
               CONSTRAINT operator_keys_hash CHECK (length(hash) = 32),
    hint       TEXT NOT NULL,
    -- Words with a blank between.
    scopes     TEXT NOT NULL,
    expires_at TIMESTAMP,
    -- NULL: not revoked; in the future: rotated, valid until then.
    revoked_at TIMESTAMP,
    created_at TIMESTAMP NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT operator_keys_revision CHECK (revision > 0)
);
CREATE INDEX operator_keys_by_revision ON operator_keys (revision);

INSERT INTO operator_keys (id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision)
SELECT id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision FROM api_keys WHERE tenant_id IS NULL;

CREATE TABLE api_keys_old (
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

INSERT INTO api_keys_old (id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision)
SELECT id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision FROM api_keys WHERE tenant_id IS NOT NULL;

DROP TABLE api_keys;
ALTER TABLE api_keys_old RENAME TO api_keys;
CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, id);
CREATE INDEX api_keys_by_revision ON api_keys (revision);
