ALTER TABLE tenants ADD COLUMN no_trace BOOLEAN NOT NULL DEFAULT FALSE;
COMMENT ON COLUMN tenants.no_trace IS 'No requests of the tenant are traced for previews of drafts.';
