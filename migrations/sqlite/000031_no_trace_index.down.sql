DROP INDEX tenants_no_trace;
