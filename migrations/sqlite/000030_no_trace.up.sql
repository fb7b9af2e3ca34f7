-- If set, no requests of the tenant are traced for previews of drafts.
ALTER TABLE tenants ADD COLUMN no_trace BOOLEAN NOT NULL DEFAULT FALSE;
