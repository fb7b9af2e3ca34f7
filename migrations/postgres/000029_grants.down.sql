DELETE FROM tombstones WHERE kind = 'grant';
ALTER TABLE tombstones DROP CONSTRAINT tombstones_kind;
ALTER TABLE tombstones ADD CONSTRAINT tombstones_kind
    CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key', 'override', 'list_entry', 'block'));
DROP TABLE grants;
