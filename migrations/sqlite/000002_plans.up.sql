-- Plans with a draft and immutable versions, and the numbers of their limits.

CREATE TABLE plans (
    id             TEXT NOT NULL CONSTRAINT plans_pkey PRIMARY KEY
                   CONSTRAINT plans_id_uuid CHECK (length(id) = 36),
    slug           TEXT NOT NULL CONSTRAINT plans_slug_key UNIQUE
                   CONSTRAINT plans_slug CHECK (length(slug) BETWEEN 1 AND 64),
    -- JSON; store/document.go has its form.
    draft          TEXT NOT NULL CONSTRAINT plans_draft CHECK (draft <> ''),
    -- The revision at which the draft was last saved.
    draft_revision BIGINT NOT NULL CONSTRAINT plans_draft_revision CHECK (draft_revision > 0),
    -- The version that tenants follow; NULL: none yet.
    published      BIGINT CONSTRAINT plans_published CHECK (published > 0),
    -- The highest version number; 0: none.
    latest         BIGINT NOT NULL CONSTRAINT plans_latest CHECK (latest >= 0 AND latest >= coalesce(published, 0)),
    -- Slug and name in lower case: the engines do not lower alike.
    search         TEXT NOT NULL,
    revision       BIGINT NOT NULL CONSTRAINT plans_revision CHECK (revision >= draft_revision),
    created_at     TIMESTAMP NOT NULL,
    updated_at     TIMESTAMP NOT NULL,
    CONSTRAINT plans_published_version FOREIGN KEY (id, published) REFERENCES plan_versions (plan_id, number)
);
CREATE INDEX plans_by_revision ON plans (revision);

-- Published documents. They never change; they go with their plan.
CREATE TABLE plan_versions (
    plan_id      TEXT NOT NULL CONSTRAINT plan_versions_plan REFERENCES plans (id),
    number       BIGINT NOT NULL CONSTRAINT plan_versions_number CHECK (number > 0),
    document     TEXT NOT NULL CONSTRAINT plan_versions_document CHECK (document <> ''),
    published_at TIMESTAMP NOT NULL,
    actor_kind   TEXT NOT NULL,
    actor_id     TEXT NOT NULL,
    actor_name   TEXT NOT NULL,
    revision     BIGINT NOT NULL CONSTRAINT plan_versions_revision CHECK (revision > 0),
    CONSTRAINT plan_versions_pkey PRIMARY KEY (plan_id, number)
);

CREATE TRIGGER plan_versions_immutable BEFORE UPDATE ON plan_versions
BEGIN
    SELECT RAISE(ABORT, 'plan_versions never change');
END;

-- The identity that all counters of one limit share, the same in all plans.
-- Never changed nor removed.
CREATE TABLE cells (
    number     BIGINT NOT NULL CONSTRAINT cells_pkey PRIMARY KEY
               CONSTRAINT cells_number CHECK (number BETWEEN 1 AND 4294967295),
    policy     TEXT NOT NULL,
    limit_name TEXT NOT NULL,
    algorithm  TEXT NOT NULL,
    -- A JSON array of strings, in the order of the policy.
    count_by   TEXT NOT NULL,
    anchor     TEXT NOT NULL,
    CONSTRAINT cells_identity UNIQUE (policy, limit_name, algorithm, count_by, anchor)
);

-- The numbers of a plan's limits as last published. Rows stay when a version
-- drops the limit.
CREATE TABLE plan_limits (
    plan_id   TEXT NOT NULL CONSTRAINT plan_limits_plan REFERENCES plans (id),
    cell      BIGINT NOT NULL CONSTRAINT plan_limits_cell REFERENCES cells (number),
    -- The revision at which the numbers came into force.
    rev       BIGINT NOT NULL CONSTRAINT plan_limits_rev CHECK (rev > 0),
    quota     BIGINT NOT NULL CONSTRAINT plan_limits_quota CHECK (quota >= 0),
    window_ms BIGINT NOT NULL CONSTRAINT plan_limits_window CHECK (window_ms > 0),
    burst     BIGINT NOT NULL CONSTRAINT plan_limits_burst CHECK (burst >= 0),
    -- JSON: the numbers before, oldest first; store/document.go has its form.
    formers   TEXT NOT NULL,
    CONSTRAINT plan_limits_pkey PRIMARY KEY (plan_id, cell)
);
CREATE INDEX plan_limits_of_cell ON plan_limits (cell);
