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

-- Decisions of a minute. Nodes add to the rows that are there.
CREATE TABLE counts_minutes (
    at                BIGINT NOT NULL CONSTRAINT counts_minutes_at CHECK (at % 60 = 0),
    tenant            BIGINT NOT NULL CONSTRAINT counts_minutes_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    kind              TEXT NOT NULL CONSTRAINT counts_minutes_kind CHECK (kind IN ('total', 'route', 'policy')),
    name              TEXT NOT NULL,
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
) WITHOUT ROWID;
CREATE INDEX counts_minutes_by_time ON counts_minutes (at);
CREATE INDEX counts_minutes_by_name ON counts_minutes (tenant, kind, name, at);

-- The minutes of an hour together,
-- written when it is over, and anew when more of it came.
CREATE TABLE counts_hours (
    at                BIGINT NOT NULL CONSTRAINT counts_hours_at CHECK (at % 3600 = 0),
    tenant            BIGINT NOT NULL CONSTRAINT counts_hours_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    kind              TEXT NOT NULL CONSTRAINT counts_hours_kind CHECK (kind IN ('total', 'route', 'policy')),
    name              TEXT NOT NULL,
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
) WITHOUT ROWID;
CREATE INDEX counts_hours_by_time ON counts_hours (at);
CREATE INDEX counts_hours_by_name ON counts_hours (tenant, kind, name, at);

-- The hours of a day (UTC) together,
-- written when it is over, and anew when more of it came.
CREATE TABLE counts_days (
    at                BIGINT NOT NULL CONSTRAINT counts_days_at CHECK (at % 86400 = 0),
    tenant            BIGINT NOT NULL CONSTRAINT counts_days_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    kind              TEXT NOT NULL CONSTRAINT counts_days_kind CHECK (kind IN ('total', 'route', 'policy')),
    name              TEXT NOT NULL,
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
) WITHOUT ROWID;
CREATE INDEX counts_days_by_time ON counts_days (at);
CREATE INDEX counts_days_by_name ON counts_days (tenant, kind, name, at);

-- Top keys and histograms of a minute. Each node writes its own row whole.
CREATE TABLE sketches_minutes (
    at     BIGINT NOT NULL CONSTRAINT sketches_minutes_at CHECK (at % 60 = 0),
    tenant BIGINT NOT NULL CONSTRAINT sketches_minutes_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    name   TEXT NOT NULL CONSTRAINT sketches_minutes_name CHECK (name <> ''),
    node   TEXT NOT NULL,
    doc    TEXT NOT NULL,
    CONSTRAINT sketches_minutes_pkey PRIMARY KEY (tenant, name, at, node)
);
CREATE INDEX sketches_minutes_by_time ON sketches_minutes (at);

-- The sketches of an hour merged; node is empty.
CREATE TABLE sketches_hours (
    at     BIGINT NOT NULL CONSTRAINT sketches_hours_at CHECK (at % 3600 = 0),
    tenant BIGINT NOT NULL CONSTRAINT sketches_hours_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    name   TEXT NOT NULL CONSTRAINT sketches_hours_name CHECK (name <> ''),
    node   TEXT NOT NULL,
    doc    TEXT NOT NULL,
    CONSTRAINT sketches_hours_pkey PRIMARY KEY (tenant, name, at, node)
);
CREATE INDEX sketches_hours_by_time ON sketches_hours (at);

-- The sketches of a day (UTC) merged; node is empty.
CREATE TABLE sketches_days (
    at     BIGINT NOT NULL CONSTRAINT sketches_days_at CHECK (at % 86400 = 0),
    tenant BIGINT NOT NULL CONSTRAINT sketches_days_tenant CHECK (tenant BETWEEN 0 AND 4294967295),
    name   TEXT NOT NULL CONSTRAINT sketches_days_name CHECK (name <> ''),
    node   TEXT NOT NULL,
    doc    TEXT NOT NULL,
    CONSTRAINT sketches_days_pkey PRIMARY KEY (tenant, name, at, node)
);
CREATE INDEX sketches_days_by_time ON sketches_days (at);

-- Hours and days whose rows do not hold all that is below them, also those that
-- are not over yet.
CREATE TABLE roll_ups_due (
    step TEXT NOT NULL CONSTRAINT roll_ups_due_step CHECK (step IN ('hour', 'day')),
    at   BIGINT NOT NULL,
    -- Rises with each addition: a roll-up that began before one does not end it.
    n    BIGINT NOT NULL CONSTRAINT roll_ups_due_n CHECK (n > 0),
    CONSTRAINT roll_ups_due_pkey PRIMARY KEY (step, at)
);

-- Up to where rows of a step were given up. Older ones are never written again:
-- what comes late is added one step above.
CREATE TABLE pruned (
    step   TEXT NOT NULL CONSTRAINT pruned_pkey PRIMARY KEY CONSTRAINT pruned_step CHECK (step IN ('minute', 'hour')),
    before BIGINT NOT NULL CONSTRAINT pruned_before CHECK (before >= 0)
);
INSERT INTO pruned (step, before) VALUES ('minute', 0), ('hour', 0);

-- The last batch that each process added, so that none is added twice.
CREATE TABLE flush_marks (
    node TEXT NOT NULL CONSTRAINT flush_marks_pkey PRIMARY KEY,
    seq  BIGINT NOT NULL CONSTRAINT flush_marks_seq CHECK (seq > 0),
    at   BIGINT NOT NULL
);
CREATE INDEX flush_marks_by_time ON flush_marks (at);

-- Refused decisions of the last day, with their explanation.
CREATE TABLE recent_refusals (
    -- The decision's.
    id     BLOB NOT NULL CONSTRAINT recent_refusals_pkey PRIMARY KEY
           CONSTRAINT recent_refusals_id CHECK (length(id) = 16),
    -- Microseconds since the epoch.
    at_us  BIGINT NOT NULL,
    tenant BIGINT NOT NULL CONSTRAINT recent_refusals_tenant CHECK (tenant BETWEEN 1 AND 4294967295),
    policy TEXT NOT NULL,
    route  TEXT NOT NULL,
    reason TEXT NOT NULL,
    node   TEXT NOT NULL,
    -- All of it as JSON; the columns before are what is looked for.
    doc    TEXT NOT NULL
);
CREATE INDEX recent_refusals_by_time ON recent_refusals (at_us, id);
CREATE INDEX recent_refusals_of_tenant ON recent_refusals (tenant, id);
CREATE INDEX recent_refusals_of_policy ON recent_refusals (policy, id);
CREATE INDEX recent_refusals_of_route ON recent_refusals (route, id);
CREATE INDEX recent_refusals_by_reason ON recent_refusals (reason, id);

-- Who does what only one process should do.
CREATE TABLE leases (
    name    TEXT NOT NULL CONSTRAINT leases_pkey PRIMARY KEY,
    holder  TEXT NOT NULL CONSTRAINT leases_holder CHECK (holder <> ''),
    -- Microseconds since the epoch, by the holder's clock.
    ends_us BIGINT NOT NULL
);
