-- The key that created a key, so that both can be revoked together.
ALTER TABLE api_keys ADD COLUMN created_by TEXT;
CREATE INDEX api_keys_created_by ON api_keys (created_by) WHERE created_by IS NOT NULL;
