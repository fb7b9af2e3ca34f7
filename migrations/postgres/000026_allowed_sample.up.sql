ALTER TABLE tenants ADD COLUMN sample_allowed BIGINT NOT NULL DEFAULT 0
    CONSTRAINT tenants_sample_allowed CHECK (sample_allowed BETWEEN 0 AND 1000000);
COMMENT ON COLUMN tenants.sample_allowed IS 'One in this many allowed requests is recorded with its explanation. 0: none.';

CREATE TABLE recent_allowed (
    id     BYTEA NOT NULL CONSTRAINT recent_allowed_pkey PRIMARY KEY
           CONSTRAINT recent_allowed_id CHECK (octet_length(id) = 16),
    at_us  BIGINT NOT NULL,
    tenant BIGINT NOT NULL CONSTRAINT recent_allowed_tenant CHECK (tenant BETWEEN 1 AND 4294967295),
    policy TEXT COLLATE "C" NOT NULL,
    route  TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C" NOT NULL,
    node   TEXT COLLATE "C" NOT NULL,
    doc    TEXT NOT NULL
);
COMMENT ON TABLE recent_allowed IS 'A sample of the allowed decisions of the last day, with their explanation, like recent_refusals.';
CREATE INDEX recent_allowed_by_time ON recent_allowed (at_us, id);
CREATE INDEX recent_allowed_of_tenant ON recent_allowed (tenant, id);
CREATE INDEX recent_allowed_of_route ON recent_allowed (route, id);
CREATE INDEX recent_allowed_by_reason ON recent_allowed (reason, id);
