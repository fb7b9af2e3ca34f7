-- What every node says of itself, so that any of them can show all. No edit: no
-- revision, no audit line, no notification.

CREATE TABLE nodes (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT nodes_pkey PRIMARY KEY
               CONSTRAINT nodes_id_uuid CHECK (length(id) = 36),
    name       TEXT COLLATE "C" NOT NULL CONSTRAINT nodes_name CHECK (name <> ''),
    seen_at_us BIGINT NOT NULL,
    doc        TEXT NOT NULL
);
COMMENT ON TABLE nodes IS 'The last report of each process that serves.';
COMMENT ON COLUMN nodes.id IS 'Made at its start; its batches of counts have it too.';
COMMENT ON COLUMN nodes.name IS 'Host name and listen address.';
COMMENT ON COLUMN nodes.seen_at_us IS 'Microseconds since the epoch, by this database''s clock.';
COMMENT ON COLUMN nodes.doc IS 'All of the report as JSON. A member is never given another meaning: older and newer releases read it.';
CREATE INDEX nodes_by_time ON nodes (seen_at_us);
