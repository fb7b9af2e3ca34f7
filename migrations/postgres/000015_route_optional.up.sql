-- Whether checks of a tenant may leave out method and path. Tenants that exist keep that right; new ones do not have it.
ALTER TABLE tenants ADD COLUMN route_optional BOOLEAN NOT NULL DEFAULT TRUE;
ALTER TABLE tenants ALTER COLUMN route_optional SET DEFAULT FALSE;
COMMENT ON COLUMN tenants.route_optional IS 'Whether a check may leave out method and path.';
