DROP INDEX api_keys_created_by;
ALTER TABLE api_keys DROP COLUMN created_by;
