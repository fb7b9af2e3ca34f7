DROP TABLE recent_allowed;
ALTER TABLE tenants DROP COLUMN sample_allowed;
