-- What the role hg_serve may do, with which nodes serve. Run this file as the role that
-- migrates and owns the tables, after its first `headgate migrate up`. It may run again.
-- docs/production.md has the steps.

-- Before Postgres 15, every role may create tables here.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO hg_serve;

-- Tables of later migrations get the same rights when they are created.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO hg_serve;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO hg_serve;

-- Lines of the audit log, published versions of plans, and marks of deleted objects are never changed.
REVOKE UPDATE, DELETE ON audit_log, tombstones FROM hg_serve;
REVOKE UPDATE ON plan_versions FROM hg_serve;
-- Only the owner migrates.
REVOKE INSERT, UPDATE, DELETE ON schema_migrations FROM hg_serve;
