-- Alert rules, the channels that get their messages, incidents, and the queue of
-- messages. Nothing of it is in a snapshot, so that no edit raises the revision.

-- Rules that compare a figure with a threshold.
CREATE TABLE alert_rules (
    id         TEXT NOT NULL CONSTRAINT alert_rules_pkey PRIMARY KEY
               CONSTRAINT alert_rules_id_uuid CHECK (length(id) = 36),
    -- The owner; NULL: the operator.
    tenant_id  TEXT CONSTRAINT alert_rules_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    version    BIGINT NOT NULL CONSTRAINT alert_rules_version CHECK (version > 0),
    -- What people edit, as JSON.
    doc        TEXT NOT NULL,
    -- What the evaluation knows, as JSON.
    state      TEXT NOT NULL,
    -- Rises with each change of the document or of the state.
    seq        BIGINT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL
);
CREATE INDEX alert_rules_of_tenant ON alert_rules (tenant_id, id);

-- Addresses that get the messages of alerts.
CREATE TABLE alert_channels (
    id           TEXT NOT NULL CONSTRAINT alert_channels_pkey PRIMARY KEY
                 CONSTRAINT alert_channels_id_uuid CHECK (length(id) = 36),
    -- The owner; NULL: the operator.
    tenant_id    TEXT CONSTRAINT alert_channels_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    version      BIGINT NOT NULL CONSTRAINT alert_channels_version CHECK (version > 0),
    doc          TEXT NOT NULL,
    -- Signs the messages of a webhook; empty: they are not signed.
    secret       TEXT NOT NULL,
    -- The secret before it, which also signs until former_until.
    former       TEXT NOT NULL,
    former_until TIMESTAMP,
    created_at   TIMESTAMP NOT NULL,
    updated_at   TIMESTAMP NOT NULL
);
CREATE INDEX alert_channels_of_tenant ON alert_channels (tenant_id, id);

-- The times during which a rule fired.
CREATE TABLE alert_incidents (
    id        TEXT NOT NULL CONSTRAINT alert_incidents_pkey PRIMARY KEY
              CONSTRAINT alert_incidents_id_uuid CHECK (length(id) = 36),
    tenant_id TEXT CONSTRAINT alert_incidents_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    -- Of a rule that may be deleted.
    rule_id   TEXT NOT NULL,
    -- The rule's document when the alert began.
    doc       TEXT NOT NULL,
    began_at  TIMESTAMP NOT NULL,
    ended_at  TIMESTAMP,
    value     DOUBLE PRECISION NOT NULL,
    peak      DOUBLE PRECISION NOT NULL,
    detail    TEXT NOT NULL
);
CREATE INDEX alert_incidents_of_tenant ON alert_incidents (tenant_id, id);
CREATE INDEX alert_incidents_of_rule ON alert_incidents (rule_id);
CREATE INDEX alert_incidents_by_end ON alert_incidents (ended_at);

-- The queue of messages, each to one channel.
CREATE TABLE alert_deliveries (
    id          TEXT NOT NULL CONSTRAINT alert_deliveries_pkey PRIMARY KEY
                CONSTRAINT alert_deliveries_id_uuid CHECK (length(id) = 36),
    tenant_id   TEXT CONSTRAINT alert_deliveries_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    channel_id  TEXT NOT NULL CONSTRAINT alert_deliveries_channel REFERENCES alert_channels (id) ON DELETE CASCADE,
    incident_id TEXT,
    event       TEXT NOT NULL,
    body        TEXT NOT NULL,
    status      TEXT NOT NULL CONSTRAINT alert_deliveries_status CHECK (status IN ('waiting', 'delivered', 'dead')),
    attempts    BIGINT NOT NULL,
    -- The result of the last attempt.
    answer      TEXT NOT NULL,
    created_at  TIMESTAMP NOT NULL,
    -- The next attempt; NULL: none.
    due_at      TIMESTAMP,
    ended_at    TIMESTAMP
);
CREATE INDEX alert_deliveries_of_tenant ON alert_deliveries (tenant_id, id);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at);
CREATE INDEX alert_deliveries_by_end ON alert_deliveries (ended_at);
CREATE INDEX alert_deliveries_of_channel ON alert_deliveries (channel_id);
