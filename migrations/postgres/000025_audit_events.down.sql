DROP INDEX audit_log_events_of_tenant;
DROP INDEX audit_log_events;
