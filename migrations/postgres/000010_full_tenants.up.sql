-- A tenant may have 100,000 overrides, list entries and blocks. Without these
-- indexes a page of one policy's rows and the count before each new row would
-- read all of them.
CREATE INDEX overrides_of_policy ON overrides (tenant_id, policy, id);
CREATE INDEX blocks_of_policy ON blocks (tenant_id, policy, id);
CREATE INDEX overrides_in_force ON overrides (tenant_id, expires_at);
CREATE INDEX list_entries_in_force ON list_entries (tenant_id, expires_at);
CREATE INDEX blocks_in_force ON blocks (tenant_id, expires_at);
