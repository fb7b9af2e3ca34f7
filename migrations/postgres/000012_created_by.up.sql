-- The key that created a key, so that both can be revoked together.
ALTER TABLE api_keys ADD COLUMN created_by TEXT COLLATE "C";
COMMENT ON COLUMN api_keys.created_by IS 'NULL: a person, a command or the bootstrap key created it.';
CREATE INDEX api_keys_created_by ON api_keys (created_by) WHERE created_by IS NOT NULL;
