-- Alert rules, the channels that get their messages, incidents, and the queue of
-- messages. Nothing of it is in a snapshot, so that no edit raises the revision.

CREATE TABLE alert_rules (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT alert_rules_pkey PRIMARY KEY
               CONSTRAINT alert_rules_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" CONSTRAINT alert_rules_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    version    BIGINT NOT NULL CONSTRAINT alert_rules_version CHECK (version > 0),
    doc        TEXT NOT NULL,
    state      TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE alert_rules IS 'Rules that compare a figure with a threshold.';
COMMENT ON COLUMN alert_rules.tenant_id IS 'The owner; NULL: the operator.';
COMMENT ON COLUMN alert_rules.doc IS 'What people edit, as JSON.';
COMMENT ON COLUMN alert_rules.state IS 'What the evaluation knows, as JSON.';
COMMENT ON COLUMN alert_rules.seq IS 'Rises with each change of the document or of the state.';
CREATE INDEX alert_rules_of_tenant ON alert_rules (tenant_id, id);

CREATE TABLE alert_channels (
    id           TEXT COLLATE "C" NOT NULL CONSTRAINT alert_channels_pkey PRIMARY KEY
                 CONSTRAINT alert_channels_id_uuid CHECK (length(id) = 36),
    tenant_id    TEXT COLLATE "C" CONSTRAINT alert_channels_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    version      BIGINT NOT NULL CONSTRAINT alert_channels_version CHECK (version > 0),
    doc          TEXT NOT NULL,
    secret       TEXT NOT NULL,
    former       TEXT NOT NULL,
    former_until TIMESTAMPTZ,
    created_at   TIMESTAMPTZ NOT NULL,
    updated_at   TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE alert_channels IS 'Addresses that get the messages of alerts.';
COMMENT ON COLUMN alert_channels.tenant_id IS 'The owner; NULL: the operator.';
COMMENT ON COLUMN alert_channels.secret IS 'Signs the messages of a webhook; empty: they are not signed.';
COMMENT ON COLUMN alert_channels.former IS 'The secret before it, which also signs until former_until.';
CREATE INDEX alert_channels_of_tenant ON alert_channels (tenant_id, id);

CREATE TABLE alert_incidents (
    id        TEXT COLLATE "C" NOT NULL CONSTRAINT alert_incidents_pkey PRIMARY KEY
              CONSTRAINT alert_incidents_id_uuid CHECK (length(id) = 36),
    tenant_id TEXT COLLATE "C" CONSTRAINT alert_incidents_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    rule_id   TEXT COLLATE "C" NOT NULL,
    doc       TEXT NOT NULL,
    began_at  TIMESTAMPTZ NOT NULL,
    ended_at  TIMESTAMPTZ,
    value     DOUBLE PRECISION NOT NULL,
    peak      DOUBLE PRECISION NOT NULL,
    detail    TEXT NOT NULL
);
COMMENT ON TABLE alert_incidents IS 'The times during which a rule fired.';
COMMENT ON COLUMN alert_incidents.rule_id IS 'Of a rule that may be deleted.';
COMMENT ON COLUMN alert_incidents.doc IS 'The rule''s document when the alert began.';
CREATE INDEX alert_incidents_of_tenant ON alert_incidents (tenant_id, id);
CREATE INDEX alert_incidents_of_rule ON alert_incidents (rule_id);
CREATE INDEX alert_incidents_by_end ON alert_incidents (ended_at);

CREATE TABLE alert_deliveries (
    id          TEXT COLLATE "C" NOT NULL CONSTRAINT alert_deliveries_pkey PRIMARY KEY
                CONSTRAINT alert_deliveries_id_uuid CHECK (length(id) = 36),
    tenant_id   TEXT COLLATE "C" CONSTRAINT alert_deliveries_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    channel_id  TEXT COLLATE "C" NOT NULL CONSTRAINT alert_deliveries_channel REFERENCES alert_channels (id) ON DELETE CASCADE,
    incident_id TEXT COLLATE "C",
    event       TEXT NOT NULL,
    body        TEXT NOT NULL,
    status      TEXT COLLATE "C" NOT NULL CONSTRAINT alert_deliveries_status CHECK (status IN ('waiting', 'delivered', 'dead')),
    attempts    BIGINT NOT NULL,
    answer      TEXT NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL,
    due_at      TIMESTAMPTZ,
    ended_at    TIMESTAMPTZ
);
COMMENT ON TABLE alert_deliveries IS 'The queue of messages, each to one channel.';
COMMENT ON COLUMN alert_deliveries.due_at IS 'The next attempt; NULL: none.';
COMMENT ON COLUMN alert_deliveries.answer IS 'The result of the last attempt.';
CREATE INDEX alert_deliveries_of_tenant ON alert_deliveries (tenant_id, id);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at);
CREATE INDEX alert_deliveries_by_end ON alert_deliveries (ended_at);
CREATE INDEX alert_deliveries_of_channel ON alert_deliveries (channel_id);
