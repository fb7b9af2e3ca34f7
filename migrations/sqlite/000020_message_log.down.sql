DROP TABLE alert_attempts;
CREATE TABLE alert_deliveries_old (
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
INSERT INTO alert_deliveries_old (id, tenant_id, channel_id, incident_id, event, body, status, attempts, answer, created_at, due_at, ended_at)
SELECT id, tenant_id, channel_id, incident_id, event, body, status, attempts, answer, created_at, due_at, ended_at
FROM alert_deliveries WHERE channel_id IS NOT NULL;
DROP TABLE alert_deliveries;
ALTER TABLE alert_deliveries_old RENAME TO alert_deliveries;
CREATE INDEX alert_deliveries_of_tenant ON alert_deliveries (tenant_id, id);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at);
CREATE INDEX alert_deliveries_by_end ON alert_deliveries (ended_at);
CREATE INDEX alert_deliveries_of_channel ON alert_deliveries (channel_id);
