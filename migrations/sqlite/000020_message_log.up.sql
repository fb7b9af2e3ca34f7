-- The attempts to send a message, which the delivery log shows; and messages that are no
-- alerts: links of invitations, which have no channel.
CREATE TABLE alert_deliveries_new (
    id          TEXT NOT NULL CONSTRAINT alert_deliveries_pkey PRIMARY KEY
                CONSTRAINT alert_deliveries_id_uuid CHECK (length(id) = 36),
    tenant_id   TEXT CONSTRAINT alert_deliveries_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    -- Where an alert or a test goes; NULL: to the address of the invitation.
    channel_id  TEXT CONSTRAINT alert_deliveries_channel REFERENCES alert_channels (id) ON DELETE CASCADE,
    invitation_id TEXT CONSTRAINT alert_deliveries_invitation REFERENCES invitations (id) ON DELETE CASCADE,
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
    ended_at    TIMESTAMP,
    CONSTRAINT alert_deliveries_whither CHECK ((channel_id IS NULL) <> (invitation_id IS NULL))
);
INSERT INTO alert_deliveries_new (id, tenant_id, channel_id, incident_id, event, body, status, attempts, answer, created_at, due_at, ended_at)
SELECT id, tenant_id, channel_id, incident_id, event, body, status, attempts, answer, created_at, due_at, ended_at FROM alert_deliveries;
DROP TABLE alert_deliveries;
ALTER TABLE alert_deliveries_new RENAME TO alert_deliveries;
CREATE INDEX alert_deliveries_of_tenant ON alert_deliveries (tenant_id, id);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at);
CREATE INDEX alert_deliveries_by_end ON alert_deliveries (ended_at);
CREATE INDEX alert_deliveries_of_channel ON alert_deliveries (channel_id);
CREATE INDEX alert_deliveries_of_invitation ON alert_deliveries (invitation_id);
CREATE TABLE alert_attempts (
    delivery_id TEXT NOT NULL CONSTRAINT alert_attempts_delivery REFERENCES alert_deliveries (id) ON DELETE CASCADE,
    -- When the attempt ended.
    at          TIMESTAMP NOT NULL,
    answer      TEXT NOT NULL,
    CONSTRAINT alert_attempts_pkey PRIMARY KEY (delivery_id, at)
);
