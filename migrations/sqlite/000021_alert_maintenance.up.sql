-- Times in which rules announce no alerts. Nothing of it is in a snapshot.
CREATE TABLE alert_maintenance (
    id         TEXT NOT NULL CONSTRAINT alert_maintenance_pkey PRIMARY KEY
               CONSTRAINT alert_maintenance_id_uuid CHECK (length(id) = 36),
    -- The owner; NULL: the operator.
    tenant_id  TEXT CONSTRAINT alert_maintenance_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    -- What people write, as JSON.
    doc        TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    -- NULL: it is repeated.
    ends_at    TIMESTAMP
);
CREATE INDEX alert_maintenance_of_tenant ON alert_maintenance (tenant_id, id);
CREATE INDEX alert_maintenance_by_end ON alert_maintenance (ends_at);
