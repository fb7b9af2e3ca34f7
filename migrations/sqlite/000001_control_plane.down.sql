DROP TABLE audit_log;
DROP TABLE settings;
DROP TABLE tombstones;
DROP TABLE counters;
DROP TABLE revision;
