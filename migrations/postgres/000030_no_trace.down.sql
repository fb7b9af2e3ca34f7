ALTER TABLE tenants DROP COLUMN no_trace;
