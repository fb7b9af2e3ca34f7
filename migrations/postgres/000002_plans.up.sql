-- Plans with a draft and immutable versions, and the numbers of their limits.

CREATE TABLE plans (
    id             TEXT COLLATE "C" NOT NULL CONSTRAINT plans_pkey PRIMARY KEY
                   CONSTRAINT plans_id_uuid CHECK (length(id) = 36),
    slug           TEXT COLLATE "C" NOT NULL CONSTRAINT plans_slug_key UNIQUE
                   CONSTRAINT plans_slug CHECK (length(slug) BETWEEN 1 AND 64),
    draft          TEXT NOT NULL CONSTRAINT plans_draft CHECK (draft <> ''),
    draft_revision BIGINT NOT NULL CONSTRAINT plans_draft_revision CHECK (draft_revision > 0),
    published      BIGINT CONSTRAINT plans_published CHECK (published > 0),
    latest         BIGINT NOT NULL CONSTRAINT plans_latest CHECK (latest >= 0 AND latest >= coalesce(published, 0)),
    search         TEXT NOT NULL,
    revision       BIGINT NOT NULL CONSTRAINT plans_revision CHECK (revision >= draft_revision),
    created_at     TIMESTAMPTZ NOT NULL,
    updated_at     TIMESTAMPTZ NOT NULL
);
COMMENT ON COLUMN plans.draft IS 'JSON; store/document.go has its form.';
COMMENT ON COLUMN plans.draft_revision IS 'The revision at which the draft was last saved.';
COMMENT ON COLUMN plans.published IS 'The version that tenants follow; NULL: none yet.';
COMMENT ON COLUMN plans.latest IS 'The highest version number; 0: none.';
COMMENT ON COLUMN plans.search IS 'Slug and name in lower case: the engines do not lower alike.';
CREATE INDEX plans_by_revision ON plans (revision);

CREATE TABLE plan_versions (
    plan_id      TEXT COLLATE "C" NOT NULL CONSTRAINT plan_versions_plan REFERENCES plans (id),
    number       BIGINT NOT NULL CONSTRAINT plan_versions_number CHECK (number > 0),
    document     TEXT NOT NULL CONSTRAINT plan_versions_document CHECK (document <> ''),
    published_at TIMESTAMPTZ NOT NULL,
    actor_kind   TEXT NOT NULL,
    actor_id     TEXT NOT NULL,
    actor_name   TEXT NOT NULL,
    revision     BIGINT NOT NULL CONSTRAINT plan_versions_revision CHECK (revision > 0),
    CONSTRAINT plan_versions_pkey PRIMARY KEY (plan_id, number)
);
COMMENT ON TABLE plan_versions IS 'Published documents. They never change; they go with their plan.';

ALTER TABLE plans ADD CONSTRAINT plans_published_version
    FOREIGN KEY (id, published) REFERENCES plan_versions (plan_id, number);

CREATE FUNCTION plan_versions_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'plan_versions never change' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER plan_versions_immutable BEFORE UPDATE ON plan_versions
    FOR EACH ROW EXECUTE FUNCTION plan_versions_immutable();

CREATE TABLE cells (
    number     BIGINT NOT NULL CONSTRAINT cells_pkey PRIMARY KEY
               CONSTRAINT cells_number CHECK (number BETWEEN 1 AND 4294967295),
    policy     TEXT COLLATE "C" NOT NULL,
    limit_name TEXT COLLATE "C" NOT NULL,
    algorithm  TEXT COLLATE "C" NOT NULL,
    count_by   TEXT COLLATE "C" NOT NULL,
    anchor     TEXT COLLATE "C" NOT NULL,
    CONSTRAINT cells_identity UNIQUE (policy, limit_name, algorithm, count_by, anchor)
);
COMMENT ON TABLE cells IS 'The identity that all counters of one limit share, the same in all plans. Never changed nor removed.';
COMMENT ON COLUMN cells.count_by IS 'A JSON array of strings, in the order of the policy.';

CREATE TABLE plan_limits (
    plan_id   TEXT COLLATE "C" NOT NULL CONSTRAINT plan_limits_plan REFERENCES plans (id),
    cell      BIGINT NOT NULL CONSTRAINT plan_limits_cell REFERENCES cells (number),
    rev       BIGINT NOT NULL CONSTRAINT plan_limits_rev CHECK (rev > 0),
    quota     BIGINT NOT NULL CONSTRAINT plan_limits_quota CHECK (quota >= 0),
    window_ms BIGINT NOT NULL CONSTRAINT plan_limits_window CHECK (window_ms > 0),
    burst     BIGINT NOT NULL CONSTRAINT plan_limits_burst CHECK (burst >= 0),
    formers   TEXT NOT NULL,
    CONSTRAINT plan_limits_pkey PRIMARY KEY (plan_id, cell)
);
COMMENT ON TABLE plan_limits IS 'The numbers of a plan''s limits as last published. Rows stay when a version drops the limit.';
COMMENT ON COLUMN plan_limits.rev IS 'The revision at which the numbers came into force.';
COMMENT ON COLUMN plan_limits.formers IS 'JSON: the numbers before, oldest first; store/document.go has its form.';
CREATE INDEX plan_limits_of_cell ON plan_limits (cell);
