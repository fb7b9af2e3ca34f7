-- Bounds of the checks that a key may send. 0 and FALSE: no bound.
ALTER TABLE api_keys ADD COLUMN max_cost BIGINT NOT NULL DEFAULT 0
    CONSTRAINT api_keys_max_cost CHECK (max_cost BETWEEN 0 AND 2147483647);
ALTER TABLE api_keys ADD COLUMN peek_only BOOLEAN NOT NULL DEFAULT FALSE;
COMMENT ON COLUMN api_keys.max_cost IS 'The largest cost of one check; 0: no bound.';
COMMENT ON COLUMN api_keys.peek_only IS 'Whether checks must have the mode peek.';
