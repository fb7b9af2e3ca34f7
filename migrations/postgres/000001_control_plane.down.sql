DROP TABLE audit_log;
DROP FUNCTION audit_log_only_added();
DROP TABLE settings;
DROP TABLE tombstones;
DROP TABLE counters;
DROP TABLE revision;
