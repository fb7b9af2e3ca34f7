-- Whether checks of a tenant may leave out method and path. Tenants that exist keep that right; new ones do not have it.
ALTER TABLE tenants ADD COLUMN route_optional BOOLEAN NOT NULL DEFAULT FALSE
    CONSTRAINT tenants_route_optional CHECK (route_optional IN (FALSE, TRUE));
UPDATE tenants SET route_optional = TRUE;
