CREATE TABLE operator_keys (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT operator_keys_pkey PRIMARY KEY
               CONSTRAINT operator_keys_id_uuid CHECK (length(id) = 36),
    name       TEXT NOT NULL,
    hash       BYTEA NOT NULL CONSTRAINT operator_keys_hash_key UNIQUE
               CONSTRAINT operator_keys_hash CHECK (octet_length(hash) = 32),
    hint       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT operator_keys_revision CHECK (revision > 0)
);
COMMENT ON COLUMN operator_keys.hash IS 'SHA-256 of the token, which is not kept.';
COMMENT ON COLUMN operator_keys.scopes IS 'Words with a blank between.';
COMMENT ON COLUMN operator_keys.revoked_at IS 'NULL: not revoked; in the future: rotated, valid until then.';
CREATE INDEX operator_keys_by_revision ON operator_keys (revision);

INSERT INTO operator_keys (id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision)
SELECT id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision FROM api_keys WHERE tenant_id IS NULL;

DELETE FROM api_keys WHERE tenant_id IS NULL;
COMMENT ON COLUMN api_keys.tenant_id IS NULL;
ALTER TABLE api_keys ALTER COLUMN tenant_id SET NOT NULL;
