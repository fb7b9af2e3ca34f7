-- How many live counters a tenant may have in Redis. 0: the setting HEADGATE_MAX_KEYS.
ALTER TABLE tenants ADD COLUMN max_keys BIGINT NOT NULL DEFAULT 0
    CONSTRAINT tenants_max_keys CHECK (max_keys = 0 OR max_keys BETWEEN 1000 AND 1000000000);
