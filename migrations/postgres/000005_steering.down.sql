DELETE FROM tombstones WHERE kind IN ('override', 'list_entry', 'block');
ALTER TABLE tombstones DROP CONSTRAINT tombstones_kind;
ALTER TABLE tombstones ADD CONSTRAINT tombstones_kind CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key'));
DROP TABLE policy_changes;
DROP TABLE blocks;
DROP TABLE list_entries;
DROP TABLE overrides;
