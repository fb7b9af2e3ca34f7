-- What every node says of itself, so that any of them can show all. No edit: no
-- revision, no audit line, no notification.

-- The last report of each process that serves.
CREATE TABLE nodes (
    -- Made at its start; its batches of counts have it too.
    id         TEXT NOT NULL CONSTRAINT nodes_pkey PRIMARY KEY
               CONSTRAINT nodes_id_uuid CHECK (length(id) = 36),
    -- Host name and listen address.
    name       TEXT NOT NULL CONSTRAINT nodes_name CHECK (name <> ''),
    -- Microseconds since the epoch, by this database's clock.
    seen_at_us BIGINT NOT NULL,
    -- All of the report as JSON. A member is never given another meaning: older and
    -- newer releases read it.
    doc        TEXT NOT NULL
);
CREATE INDEX nodes_by_time ON nodes (seen_at_us);
