CREATE INDEX tenants_no_trace ON tenants (number) WHERE no_trace;
