CREATE TABLE saved_filters (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT saved_filters_pkey PRIMARY KEY
               CONSTRAINT saved_filters_id_uuid CHECK (length(id) = 36),
    tenant_id  TEXT COLLATE "C" CONSTRAINT saved_filters_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    owner_id   TEXT COLLATE "C" NOT NULL CONSTRAINT saved_filters_owner REFERENCES users (id) ON DELETE CASCADE,
    page       TEXT COLLATE "C" NOT NULL CONSTRAINT saved_filters_page CHECK (page <> ''),
    name       TEXT NOT NULL CONSTRAINT saved_filters_name CHECK (name <> ''),
    query      TEXT NOT NULL,
    shared     BOOLEAN NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE saved_filters IS 'Named filters of pages of the dashboard.';
COMMENT ON COLUMN saved_filters.tenant_id IS 'The tenant whose page it is; NULL: a page of the operator.';
COMMENT ON COLUMN saved_filters.query IS 'The parameters of the page.';
COMMENT ON COLUMN saved_filters.shared IS 'Everybody who may see the page sees the filter.';
CREATE INDEX saved_filters_of_owner ON saved_filters (owner_id, id);
CREATE INDEX saved_filters_of_page ON saved_filters (tenant_id, page, id);
