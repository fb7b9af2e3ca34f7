-- Keys of tenants and keys of the operator are one kind of key, in one table.
-- Until it is replaced, a node of the release before keeps the last snapshot that
-- it loaded and serves checks from it.

ALTER TABLE api_keys ALTER COLUMN tenant_id DROP NOT NULL;
COMMENT ON COLUMN api_keys.tenant_id IS 'NULL: a key of the operator.';

INSERT INTO api_keys (id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision)
SELECT id, NULL, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision FROM operator_keys;

DROP TABLE operator_keys;
