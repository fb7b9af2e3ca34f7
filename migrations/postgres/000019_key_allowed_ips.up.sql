-- The addresses from which a key may be used: IP addresses and CIDR ranges with a blank between. Empty: all.
ALTER TABLE api_keys ADD COLUMN allowed_ips TEXT NOT NULL DEFAULT '';
COMMENT ON COLUMN api_keys.allowed_ips IS 'IP addresses and CIDR ranges with a blank between; empty: all.';
