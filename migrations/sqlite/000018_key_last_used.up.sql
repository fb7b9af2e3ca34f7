-- When the key was last used, in milliseconds since 1970, NULL if never. It changes without a revision.
ALTER TABLE api_keys ADD COLUMN last_used_at BIGINT;
