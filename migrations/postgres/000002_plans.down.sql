DROP TABLE plan_limits;
DROP TABLE cells;
ALTER TABLE plans DROP CONSTRAINT plans_published_version;
DROP TABLE plan_versions;
DROP FUNCTION plan_versions_immutable();
DROP TABLE plans;
