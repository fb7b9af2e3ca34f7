-- People who sign in, the browsers where they are signed in, and the links by
-- which they set a password.
--
-- What belongs to a tenant goes with it (ON DELETE CASCADE), so that a release
-- that does not know it can still delete one. Nothing of it is in a snapshot.

CREATE TABLE users (
    id           TEXT COLLATE "C" NOT NULL CONSTRAINT users_pkey PRIMARY KEY
                 CONSTRAINT users_id_uuid CHECK (length(id) = 36),
    tenant_id    TEXT COLLATE "C" CONSTRAINT users_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    email        TEXT NOT NULL CONSTRAINT users_email CHECK (email <> ''),
    email_key    TEXT COLLATE "C" NOT NULL CONSTRAINT users_email_key UNIQUE,
    name         TEXT NOT NULL CONSTRAINT users_name CHECK (name <> ''),
    search       TEXT NOT NULL,
    role         TEXT COLLATE "C" NOT NULL CONSTRAINT users_role
                 CHECK (role IN ('owner', 'editor', 'viewer', 'tenant_admin', 'tenant_viewer')),
    password     TEXT NOT NULL,
    issuer       TEXT COLLATE "C" CONSTRAINT users_issuer CHECK (issuer <> ''),
    subject      TEXT COLLATE "C" CONSTRAINT users_subject CHECK (subject <> ''),
    disabled     BOOLEAN NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    updated_at   TIMESTAMPTZ NOT NULL,
    signed_in_at TIMESTAMPTZ,
    revision     BIGINT NOT NULL CONSTRAINT users_revision CHECK (revision > 0),
    CONSTRAINT users_whose CHECK ((tenant_id IS NULL) = (role IN ('owner', 'editor', 'viewer'))),
    CONSTRAINT users_link CHECK ((issuer IS NULL) = (subject IS NULL)),
    CONSTRAINT users_link_key UNIQUE (issuer, subject)
);
COMMENT ON TABLE users IS 'People who sign in.';
COMMENT ON COLUMN users.tenant_id IS 'NULL: of the operator.';
COMMENT ON COLUMN users.email_key IS 'The e-mail in lower case: the engines do not lower alike.';
COMMENT ON COLUMN users.search IS 'E-mail and name in lower case.';
COMMENT ON COLUMN users.password IS 'A hash in PHC form; empty: none.';
COMMENT ON COLUMN users.issuer IS 'With subject the person at an OpenID provider; NULL: none linked.';
COMMENT ON COLUMN users.signed_in_at IS 'The last sign-in; NULL: never.';
CREATE INDEX users_of_tenant ON users (tenant_id, id);

CREATE TABLE sessions (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT sessions_pkey PRIMARY KEY
               CONSTRAINT sessions_id_uuid CHECK (length(id) = 36),
    hash       BYTEA NOT NULL CONSTRAINT sessions_hash_key UNIQUE
               CONSTRAINT sessions_hash CHECK (length(hash) = 32),
    user_id    TEXT COLLATE "C" NOT NULL CONSTRAINT sessions_user REFERENCES users (id) ON DELETE CASCADE,
    address    TEXT NOT NULL,
    agent      TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    seen_at    TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE sessions IS 'Browsers that are signed in.';
COMMENT ON COLUMN sessions.hash IS 'SHA-256 of the cookie''s value, which is not kept.';
COMMENT ON COLUMN sessions.seen_at IS 'At most a minute late.';
COMMENT ON COLUMN sessions.expires_at IS 'The end however much it is used.';
CREATE INDEX sessions_of_user ON sessions (user_id, id);
CREATE INDEX sessions_by_end ON sessions (expires_at);
CREATE INDEX sessions_by_seen ON sessions (seen_at);

CREATE TABLE invitations (
    id         TEXT COLLATE "C" NOT NULL CONSTRAINT invitations_pkey PRIMARY KEY
               CONSTRAINT invitations_id_uuid CHECK (length(id) = 36),
    hash       BYTEA NOT NULL CONSTRAINT invitations_hash_key UNIQUE
               CONSTRAINT invitations_hash CHECK (length(hash) = 32),
    tenant_id  TEXT COLLATE "C" CONSTRAINT invitations_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    email      TEXT NOT NULL,
    search     TEXT NOT NULL,
    role       TEXT COLLATE "C" NOT NULL CONSTRAINT invitations_role
               CHECK (role IN ('owner', 'editor', 'viewer', 'tenant_admin', 'tenant_viewer')),
    user_id    TEXT COLLATE "C" CONSTRAINT invitations_user REFERENCES users (id) ON DELETE CASCADE,
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT invitations_revision CHECK (revision > 0),
    CONSTRAINT invitations_whose CHECK ((tenant_id IS NULL) = (role IN ('owner', 'editor', 'viewer')))
);
COMMENT ON TABLE invitations IS 'Links by which one person sets a name and a password, once: the row goes with it.';
COMMENT ON COLUMN invitations.hash IS 'SHA-256 of the link''s token, which is not kept.';
COMMENT ON COLUMN invitations.tenant_id IS 'NULL: to the operator''s people.';
COMMENT ON COLUMN invitations.email IS 'Empty: of the set-up link, whose user chooses it.';
COMMENT ON COLUMN invitations.search IS 'The e-mail in lower case.';
COMMENT ON COLUMN invitations.user_id IS 'Of somebody who exists and gets a new password; NULL: a new user.';
CREATE INDEX invitations_of_tenant ON invitations (tenant_id, id);
CREATE INDEX invitations_of_user ON invitations (user_id);
CREATE INDEX invitations_by_end ON invitations (expires_at);
