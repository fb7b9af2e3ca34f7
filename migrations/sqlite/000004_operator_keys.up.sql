-- Keys that act for the operator.

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
