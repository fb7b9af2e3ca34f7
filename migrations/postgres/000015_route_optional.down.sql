ALTER TABLE tenants DROP COLUMN route_optional;
