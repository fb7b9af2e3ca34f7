-- Links that open one page of the dashboard without a session.
CREATE TABLE shared_links (
    id           TEXT NOT NULL CONSTRAINT shared_links_pkey PRIMARY KEY
                 CONSTRAINT shared_links_id_uuid CHECK (length(id) = 36),
    -- The owner; NULL: the operator.
    tenant_id    TEXT CONSTRAINT shared_links_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    -- SHA-256 of the token, which is not kept.
    hash         BLOB NOT NULL CONSTRAINT shared_links_hash_key UNIQUE
                 CONSTRAINT shared_links_hash CHECK (length(hash) = 32),
    -- What the creator chose, as JSON: name, kind, page, query, time zone, end.
    doc          TEXT NOT NULL,
    -- The actor who created the link, as JSON.
    created_by   TEXT NOT NULL,
    created_at   TIMESTAMP NOT NULL,
    expires_at   TIMESTAMP NOT NULL,
    last_used_at TIMESTAMP,
    -- The copy of the page, compressed; NULL: the link is a live display.
    content      BLOB
);
CREATE INDEX shared_links_of_tenant ON shared_links (tenant_id, id);
CREATE INDEX shared_links_by_end ON shared_links (expires_at);
