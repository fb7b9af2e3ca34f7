-- Tombstones of the kinds before: SQLite cannot change a CHECK, so the table is made anew.
CREATE TABLE tombstones_new (
    revision  BIGINT NOT NULL CONSTRAINT tombstones_revision CHECK (revision > 0),
    kind      TEXT NOT NULL CONSTRAINT tombstones_kind
              CHECK (kind IN ('plan', 'tenant', 'key', 'operator_key', 'override', 'list_entry', 'block')),
    object_id TEXT NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (revision, kind, object_id)
);
INSERT INTO tombstones_new (revision, kind, object_id) SELECT revision, kind, object_id FROM tombstones WHERE kind <> 'grant';
DROP TABLE tombstones;
ALTER TABLE tombstones_new RENAME TO tombstones;

DROP TABLE grants;
