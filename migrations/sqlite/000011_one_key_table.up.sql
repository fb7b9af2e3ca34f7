-- Keys of tenants and keys of the operator are one kind of key, in one table.
-- SQLite cannot drop NOT NULL from a column, so the table is written again.

CREATE TABLE api_keys_new (
    id         TEXT NOT NULL CONSTRAINT api_keys_pkey PRIMARY KEY
               CONSTRAINT api_keys_id_uuid CHECK (length(id) = 36),
    -- NULL: a key of the operator.
    tenant_id  TEXT CONSTRAINT api_keys_tenant REFERENCES tenants (id),
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

INSERT INTO api_keys_new (id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision)
SELECT id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision FROM api_keys
UNION ALL
SELECT id, NULL, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision FROM operator_keys;

DROP TABLE operator_keys;
DROP TABLE api_keys;
ALTER TABLE api_keys_new RENAME TO api_keys;
CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, id);
CREATE INDEX api_keys_by_revision ON api_keys (revision);
