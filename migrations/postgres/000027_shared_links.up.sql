CREATE TABLE shared_links (
    id           TEXT COLLATE "C" NOT NULL CONSTRAINT shared_links_pkey PRIMARY KEY
                 CONSTRAINT shared_links_id_uuid CHECK (length(id) = 36),
    tenant_id    TEXT COLLATE "C" CONSTRAINT shared_links_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    hash         BYTEA NOT NULL CONSTRAINT shared_links_hash_key UNIQUE
                 CONSTRAINT shared_links_hash CHECK (octet_length(hash) = 32),
    doc          TEXT NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    expires_at   TIMESTAMPTZ NOT NULL,
    last_used_at TIMESTAMPTZ,
    content      BYTEA
);
COMMENT ON TABLE shared_links IS 'Links that open one page of the dashboard without a session.';
COMMENT ON COLUMN shared_links.tenant_id IS 'The owner; NULL: the operator.';
COMMENT ON COLUMN shared_links.hash IS 'SHA-256 of the token, which is not kept.';
COMMENT ON COLUMN shared_links.doc IS 'What the creator chose, as JSON: name, kind, page, query, time zone, end.';
COMMENT ON COLUMN shared_links.created_by IS 'The actor who created the link, as JSON.';
COMMENT ON COLUMN shared_links.content IS 'The copy of the page, compressed; NULL: the link is a live display.';
CREATE INDEX shared_links_of_tenant ON shared_links (tenant_id, id);
CREATE INDEX shared_links_by_end ON shared_links (expires_at);
