-- The states of durable counters, from which a limiter that lost its data is restored. No
-- snapshot has them, and a change raises no revision.
CREATE TABLE durable_states (
    -- tenants.number.
    tenant    BIGINT NOT NULL,
    cell      BIGINT NOT NULL,
    -- Hash of the values of count_by; zero for the whole tenant.
    part      BLOB   NOT NULL CONSTRAINT durable_states_part CHECK (length(part) = 16),
    algorithm TEXT   NOT NULL,
    -- Revision of the numbers of the state; 0 if the counter was reset.
    rev       BIGINT NOT NULL,
    a         BIGINT NOT NULL,
    b         BIGINT NOT NULL,
    t         BIGINT NOT NULL,
    -- Time of the decision by the limiter's clock, in microseconds since 1970.
    at_us     BIGINT NOT NULL,
    -- When the counter is as if unused, in microseconds since 1970.
    ends_us   BIGINT NOT NULL,
    CONSTRAINT durable_states_pkey PRIMARY KEY (tenant, cell, part)
);
CREATE INDEX durable_states_by_end ON durable_states (ends_us);
