-- The states of durable counters, from which a limiter that lost its data is restored. No
-- snapshot has them, and a change raises no revision.
CREATE TABLE durable_states (
    tenant    BIGINT NOT NULL,
    cell      BIGINT NOT NULL,
    part      BYTEA  NOT NULL CONSTRAINT durable_states_part CHECK (length(part) = 16),
    algorithm TEXT   NOT NULL,
    rev       BIGINT NOT NULL,
    a         BIGINT NOT NULL,
    b         BIGINT NOT NULL,
    t         BIGINT NOT NULL,
    at_us     BIGINT NOT NULL,
    ends_us   BIGINT NOT NULL,
    CONSTRAINT durable_states_pkey PRIMARY KEY (tenant, cell, part)
);
COMMENT ON TABLE durable_states IS 'States of durable counters.';
COMMENT ON COLUMN durable_states.tenant IS 'tenants.number.';
COMMENT ON COLUMN durable_states.part IS 'Hash of the values of count_by; zero for the whole tenant.';
COMMENT ON COLUMN durable_states.rev IS 'Revision of the numbers of the state; 0 if the counter was reset.';
COMMENT ON COLUMN durable_states.at_us IS 'Time of the decision by the limiter''s clock, in microseconds since 1970.';
COMMENT ON COLUMN durable_states.ends_us IS 'When the counter is as if unused, in microseconds since 1970.';
CREATE INDEX durable_states_by_end ON durable_states (ends_us);
