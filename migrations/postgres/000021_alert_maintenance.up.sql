-- Times in which rules announce no alerts. Nothing of it is in a snapshot.
CREATE TABLE alert_maintenance (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT alert_maintenance_pkey PRIMARY KEY
               CONSTRAINT alert_maintenance_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" CONSTRAINT alert_maintenance_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    doc        TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    ends_at    TIMESTAMPTZ
);
CREATE INDEX alert_maintenance_of_tenant ON alert_maintenance (tenant_id, id);
CREATE INDEX alert_maintenance_by_end ON alert_maintenance (ends_at);
COMMENT ON TABLE alert_maintenance IS 'Times in which rules announce no alerts.';
COMMENT ON COLUMN alert_maintenance.tenant_id IS 'The owner; NULL: the operator.';
COMMENT ON COLUMN alert_maintenance.doc IS 'What people write, as JSON.';
COMMENT ON COLUMN alert_maintenance.ends_at IS 'NULL: it is repeated.';
