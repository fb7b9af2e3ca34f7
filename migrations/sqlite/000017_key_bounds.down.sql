ALTER TABLE api_keys DROP COLUMN peek_only;
ALTER TABLE api_keys DROP COLUMN max_cost;
