DROP TRIGGER audit_log_not_truncated ON audit_log;
DROP TABLE audit_head;
-- What was written before the first edit gets the revision of that one.
ALTER TABLE audit_log DISABLE TRIGGER audit_log_only_added;
UPDATE audit_log SET revision = 1 WHERE revision = 0;
ALTER TABLE audit_log ENABLE TRIGGER audit_log_only_added;
ALTER TABLE audit_log DROP CONSTRAINT audit_log_revision;
ALTER TABLE audit_log ADD CONSTRAINT audit_log_revision CHECK (revision > 0);
ALTER TABLE audit_log
    DROP CONSTRAINT audit_log_chained,
    DROP COLUMN seq,
    DROP COLUMN hash;
