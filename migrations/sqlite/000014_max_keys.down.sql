ALTER TABLE tenants DROP COLUMN max_keys;
