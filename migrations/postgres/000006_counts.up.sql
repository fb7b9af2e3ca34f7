-- What was counted of decisions, for people to look at: counts and sketches by
-- minute, hour and day, and refusals of the last day.
--
-- Tenants are numbers, which are never used twice; 0 is all together. Nothing is
-- referenced: counts outlive what they are of, and adding to them takes no lock
-- that an edit waits for. Instants are seconds since the epoch.
--
-- A row is looked for by tenant and time, so its time stands in the key behind
-- tenant and kind; the index by name is for one route or policy, the one by time
-- alone for rolling up and pruning.

CREATE TABLE counts_minutes (
    at                BIGINT NOT NULL CONSTRAINT counts_minutes_at CHECK (at % 60 = 0),
    tenant            BIGINT NOT NULL CONSTRAINT counts_minutes_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    kind              TEXT COLLATE "C" NOT NULL CONSTRAINT counts_minutes_kind CHECK (kind IN ('total', 'route', 'policy')),
    name              TEXT COLLATE "C" NOT NULL,
    requests          BIGINT NOT NULL,
    ok                BIGINT NOT NULL,
    listed            BIGINT NOT NULL,
    unmatched         BIGINT NOT NULL,
    over_limit        BIGINT NOT NULL,
    never_fits        BIGINT NOT NULL,
    other_policy      BIGINT NOT NULL,
    blocked           BIGINT NOT NULL,
    denied_by_list    BIGINT NOT NULL,
    missing_attribute BIGINT NOT NULL,
    denied_unmatched  BIGINT NOT NULL,
    suspended         BIGINT NOT NULL,
    batch_refused     BIGINT NOT NULL,
    unavailable       BIGINT NOT NULL,
    forced            BIGINT NOT NULL,
    shadow_refused    BIGINT NOT NULL,
    degraded          BIGINT NOT NULL,
    local             BIGINT NOT NULL,
    cost              BIGINT NOT NULL,
    CONSTRAINT counts_minutes_pkey PRIMARY KEY (tenant, kind, at, name)
) WITH (fillfactor = 70);
COMMENT ON TABLE counts_minutes IS 'Decisions of a minute. Nodes add to the rows that are there.';
COMMENT ON COLUMN counts_minutes.name IS 'Of a route its pattern, of a policy its slug, of a total nothing.';
CREATE INDEX counts_minutes_by_time ON counts_minutes (at);
CREATE INDEX counts_minutes_by_name ON counts_minutes (tenant, kind, name, at);

CREATE TABLE counts_hours (
    at                BIGINT NOT NULL CONSTRAINT counts_hours_at CHECK (at % 3600 = 0),
    tenant            BIGINT NOT NULL CONSTRAINT counts_hours_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    kind              TEXT COLLATE "C" NOT NULL CONSTRAINT counts_hours_kind CHECK (kind IN ('total', 'route', 'policy')),
    name              TEXT COLLATE "C" NOT NULL,
    requests          BIGINT NOT NULL,
    ok                BIGINT NOT NULL,
    listed            BIGINT NOT NULL,
    unmatched         BIGINT NOT NULL,
    over_limit        BIGINT NOT NULL,
    never_fits        BIGINT NOT NULL,
    other_policy      BIGINT NOT NULL,
    blocked           BIGINT NOT NULL,
    denied_by_list    BIGINT NOT NULL,
    missing_attribute BIGINT NOT NULL,
    denied_unmatched  BIGINT NOT NULL,
    suspended         BIGINT NOT NULL,
    batch_refused     BIGINT NOT NULL,
    unavailable       BIGINT NOT NULL,
    forced            BIGINT NOT NULL,
    shadow_refused    BIGINT NOT NULL,
    degraded          BIGINT NOT NULL,
    local             BIGINT NOT NULL,
    cost              BIGINT NOT NULL,
    CONSTRAINT counts_hours_pkey PRIMARY KEY (tenant, kind, at, name)
);
COMMENT ON TABLE counts_hours IS 'The minutes of an hour together, written when it is over, and anew when more of it came.';
CREATE INDEX counts_hours_by_time ON counts_hours (at);
CREATE INDEX counts_hours_by_name ON counts_hours (tenant, kind, name, at);

CREATE TABLE counts_days (
    at                BIGINT NOT NULL CONSTRAINT counts_days_at CHECK (at % 86400 = 0),
    tenant            BIGINT NOT NULL CONSTRAINT counts_days_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    kind              TEXT COLLATE "C" NOT NULL CONSTRAINT counts_days_kind CHECK (kind IN ('total', 'route', 'policy')),
    name              TEXT COLLATE "C" NOT NULL,
    requests          BIGINT NOT NULL,
    ok                BIGINT NOT NULL,
    listed            BIGINT NOT NULL,
    unmatched         BIGINT NOT NULL,
    over_limit        BIGINT NOT NULL,
    never_fits        BIGINT NOT NULL,
    other_policy      BIGINT NOT NULL,
    blocked           BIGINT NOT NULL,
    denied_by_list    BIGINT NOT NULL,
    missing_attribute BIGINT NOT NULL,
    denied_unmatched  BIGINT NOT NULL,
    suspended         BIGINT NOT NULL,
    batch_refused     BIGINT NOT NULL,
    unavailable       BIGINT NOT NULL,
    forced            BIGINT NOT NULL,
    shadow_refused    BIGINT NOT NULL,
    degraded          BIGINT NOT NULL,
    local             BIGINT NOT NULL,
    cost              BIGINT NOT NULL,
    CONSTRAINT counts_days_pkey PRIMARY KEY (tenant, kind, at, name)
);
COMMENT ON TABLE counts_days IS 'The hours of a day (UTC) together, written when it is over, and anew when more of it came.';
CREATE INDEX counts_days_by_time ON counts_days (at);
CREATE INDEX counts_days_by_name ON counts_days (tenant, kind, name, at);

CREATE TABLE sketches_minutes (
    at     BIGINT NOT NULL CONSTRAINT sketches_minutes_at CHECK (at % 60 = 0),
    tenant BIGINT NOT NULL CONSTRAINT sketches_minutes_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    name   TEXT COLLATE "C" NOT NULL CONSTRAINT sketches_minutes_name CHECK (name <> ''),
    node   TEXT COLLATE "C" NOT NULL,
    doc    TEXT NOT NULL,
    CONSTRAINT sketches_minutes_pkey PRIMARY KEY (tenant, name, at, node)
);
COMMENT ON TABLE sketches_minutes IS 'Top keys and histograms of a minute. Each node writes its own row whole.';
CREATE INDEX sketches_minutes_by_time ON sketches_minutes (at);

CREATE TABLE sketches_hours (
    at     BIGINT NOT NULL CONSTRAINT sketches_hours_at CHECK (at % 3600 = 0),
    tenant BIGINT NOT NULL CONSTRAINT sketches_hours_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    name   TEXT COLLATE "C" NOT NULL CONSTRAINT sketches_hours_name CHECK (name <> ''),
    node   TEXT COLLATE "C" NOT NULL,
    doc    TEXT NOT NULL,
    CONSTRAINT sketches_hours_pkey PRIMARY KEY (tenant, name, at, node)
);
COMMENT ON TABLE sketches_hours IS 'The sketches of an hour merged; node is empty.';
CREATE INDEX sketches_hours_by_time ON sketches_hours (at);

CREATE TABLE sketches_days (
    at     BIGINT NOT NULL CONSTRAINT sketches_days_at CHECK (at % 86400 = 0),
    tenant BIGINT NOT NULL CONSTRAINT sketches_days_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    name   TEXT COLLATE "C" NOT NULL CONSTRAINT sketches_days_name CHECK (name <> ''),
    node   TEXT COLLATE "C" NOT NULL,
    doc    TEXT NOT NULL,
    CONSTRAINT sketches_days_pkey PRIMARY KEY (tenant, name, at, node)
);
COMMENT ON TABLE sketches_days IS 'The sketches of a day (UTC) merged; node is empty.';
CREATE INDEX sketches_days_by_time ON sketches_days (at);

CREATE TABLE roll_ups_due (
    step TEXT COLLATE "C" NOT NULL CONSTRAINT roll_ups_due_step CHECK (step IN ('hour', 'day')),
    at   BIGINT NOT NULL,
    n    BIGINT NOT NULL CONSTRAINT roll_ups_due_n CHECK (n > 0),
    CONSTRAINT roll_ups_due_pkey PRIMARY KEY (step, at)
);
COMMENT ON TABLE roll_ups_due IS 'Hours and days whose rows do not hold all that is below them, also those that are not over yet.';
COMMENT ON COLUMN roll_ups_due.n IS 'Rises with each addition: a roll-up that began before one does not end it.';

CREATE TABLE pruned (
    step   TEXT COLLATE "C" NOT NULL CONSTRAINT pruned_pkey PRIMARY KEY CONSTRAINT pruned_step CHECK (step IN ('minute', 'hour')),
    before BIGINT NOT NULL CONSTRAINT pruned_before CHECK (before >= 0)
);
INSERT INTO pruned (step, before) VALUES ('minute', 0), ('hour', 0);
COMMENT ON TABLE pruned IS 'Up to where rows of a step were given up. Older ones are never written again: what comes late is added one step above.';

CREATE TABLE flush_marks (
    node TEXT COLLATE "C" NOT NULL CONSTRAINT flush_marks_pkey PRIMARY KEY,
    seq  BIGINT NOT NULL CONSTRAINT flush_marks_seq CHECK (seq > 0),
    at   BIGINT NOT NULL
);
COMMENT ON TABLE flush_marks IS 'The last batch that each process added, so that none is added twice.';
CREATE INDEX flush_marks_by_time ON flush_marks (at);

CREATE TABLE recent_refusals (
    id     BYTEA NOT NULL CONSTRAINT recent_refusals_pkey PRIMARY KEY
           CONSTRAINT recent_refusals_id CHECK (octet_length(id) = 16),
    at_us  BIGINT NOT NULL,
    tenant BIGINT NOT NULL CONSTRAINT recent_refusals_tenant CHECK (tenant BETWEEN 1 AND 4294967295),
    policy TEXT COLLATE "C" NOT NULL,
    route  TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C" NOT NULL,
    node   TEXT COLLATE "C" NOT NULL,
    doc    TEXT NOT NULL
);
COMMENT ON TABLE recent_refusals IS 'Refused decisions of the last day, with their explanation.';
COMMENT ON COLUMN recent_refusals.id IS 'The decision''s.';
COMMENT ON COLUMN recent_refusals.at_us IS 'Microseconds since the epoch.';
COMMENT ON COLUMN recent_refusals.doc IS 'All of it as JSON; the columns before are what is looked for.';
CREATE INDEX recent_refusals_by_time ON recent_refusals (at_us, id);
CREATE INDEX recent_refusals_of_tenant ON recent_refusals (tenant, id);
CREATE INDEX recent_refusals_of_policy ON recent_refusals (policy, id);
CREATE INDEX recent_refusals_of_route ON recent_refusals (route, id);
CREATE INDEX recent_refusals_by_reason ON recent_refusals (reason, id);

CREATE TABLE leases (
    name    TEXT COLLATE "C" NOT NULL CONSTRAINT leases_pkey PRIMARY KEY,
    holder  TEXT COLLATE "C" NOT NULL CONSTRAINT leases_holder CHECK (holder <> ''),
    ends_us BIGINT NOT NULL
);
COMMENT ON TABLE leases IS 'Who does what only one process should do.';
COMMENT ON COLUMN leases.ends_us IS 'Microseconds since the epoch, by the holder''s clock.';
