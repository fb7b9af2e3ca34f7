-- Named filters of pages of the dashboard.
CREATE TABLE saved_filters (
    id         TEXT NOT NULL CONSTRAINT saved_filters_pkey PRIMARY KEY
               CONSTRAINT saved_filters_id_uuid CHECK (length(id) = 36),
    -- The tenant whose page it is; NULL: a page of the operator.
    tenant_id  TEXT CONSTRAINT saved_filters_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    owner_id   TEXT NOT NULL CONSTRAINT saved_filters_owner REFERENCES users (id) ON DELETE CASCADE,
    page       TEXT NOT NULL CONSTRAINT saved_filters_page CHECK (page <> ''),
    name       TEXT NOT NULL CONSTRAINT saved_filters_name CHECK (name <> ''),
    -- The parameters of the page.
    query      TEXT NOT NULL,
    -- Everybody who may see the page sees the filter.
    shared     BOOLEAN NOT NULL,
    created_at TIMESTAMP NOT NULL
);
CREATE INDEX saved_filters_of_owner ON saved_filters (owner_id, id);
CREATE INDEX saved_filters_of_page ON saved_filters (tenant_id, page, id);
