-- People who sign in, the browsers where they are signed in, and the links by
-- which they set a password.
--
-- What belongs to a tenant goes with it (ON DELETE CASCADE), so that a release
-- that does not know it can still delete one. Nothing of it is in a snapshot.

CREATE TABLE users (
    id           TEXT NOT NULL CONSTRAINT users_pkey PRIMARY KEY
                 CONSTRAINT users_id_uuid CHECK (length(id) = 36),
    -- NULL: of the operator.
    tenant_id    TEXT CONSTRAINT users_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    email        TEXT NOT NULL CONSTRAINT users_email CHECK (email <> ''),
    -- The e-mail in lower case: the engines do not lower alike.
    email_key    TEXT NOT NULL CONSTRAINT users_email_key UNIQUE,
    name         TEXT NOT NULL CONSTRAINT users_name CHECK (name <> ''),
    -- E-mail and name in lower case.
    search       TEXT NOT NULL,
    role         TEXT NOT NULL CONSTRAINT users_role
                 CHECK (role IN ('owner', 'editor', 'viewer', 'tenant_admin', 'tenant_viewer')),
    -- A hash in PHC form; empty: none.
    password     TEXT NOT NULL,
    -- The person at an OpenID provider; NULL: none linked.
    issuer       TEXT CONSTRAINT users_issuer CHECK (issuer <> ''),
    subject      TEXT CONSTRAINT users_subject CHECK (subject <> ''),
    disabled     BOOLEAN NOT NULL,
    created_at   TIMESTAMP NOT NULL,
    updated_at   TIMESTAMP NOT NULL,
    -- The last sign-in; NULL: never.
    signed_in_at TIMESTAMP,
    revision     BIGINT NOT NULL CONSTRAINT users_revision CHECK (revision > 0),
    CONSTRAINT users_whose CHECK ((tenant_id IS NULL) = (role IN ('owner', 'editor', 'viewer'))),
    CONSTRAINT users_link CHECK ((issuer IS NULL) = (subject IS NULL)),
    CONSTRAINT users_link_key UNIQUE (issuer, subject)
);
CREATE INDEX users_of_tenant ON users (tenant_id, id);

CREATE TABLE sessions (
    id         TEXT NOT NULL CONSTRAINT sessions_pkey PRIMARY KEY
               CONSTRAINT sessions_id_uuid CHECK (length(id) = 36),
    -- SHA-256 of the cookie's value, which is not kept.
    hash       BLOB NOT NULL CONSTRAINT sessions_hash_key UNIQUE
               CONSTRAINT sessions_hash CHECK (length(hash) = 32),
    user_id    TEXT NOT NULL CONSTRAINT sessions_user REFERENCES users (id) ON DELETE CASCADE,
    address    TEXT NOT NULL,
    agent      TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    -- At most a minute late.
    seen_at    TIMESTAMP NOT NULL,
    -- The end however much it is used.
    expires_at TIMESTAMP NOT NULL
);
CREATE INDEX sessions_of_user ON sessions (user_id, id);
CREATE INDEX sessions_by_end ON sessions (expires_at);
CREATE INDEX sessions_by_seen ON sessions (seen_at);

-- Links that are taken once: the row goes with it.
CREATE TABLE invitations (
    id         TEXT NOT NULL CONSTRAINT invitations_pkey PRIMARY KEY
               CONSTRAINT invitations_id_uuid CHECK (length(id) = 36),
    -- SHA-256 of the link's token, which is not kept.
    hash       BLOB NOT NULL CONSTRAINT invitations_hash_key UNIQUE
               CONSTRAINT invitations_hash CHECK (length(hash) = 32),
    -- NULL: to the operator's people.
    tenant_id  TEXT CONSTRAINT invitations_tenant REFERENCES tenants (id) ON DELETE CASCADE,
    -- Empty: of the set-up link, whose user chooses it.
    email      TEXT NOT NULL,
    -- The e-mail in lower case.
    search     TEXT NOT NULL,
    role       TEXT NOT NULL CONSTRAINT invitations_role
               CHECK (role IN ('owner', 'editor', 'viewer', 'tenant_admin', 'tenant_viewer')),
    -- Of somebody who exists and gets a new password; NULL: a new user.
    user_id    TEXT CONSTRAINT invitations_user REFERENCES users (id) ON DELETE CASCADE,
    created_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    revision   BIGINT NOT NULL CONSTRAINT invitations_revision CHECK (revision > 0),
    CONSTRAINT invitations_whose CHECK ((tenant_id IS NULL) = (role IN ('owner', 'editor', 'viewer')))
);
CREATE INDEX invitations_of_tenant ON invitations (tenant_id, id);
CREATE INDEX invitations_of_user ON invitations (user_id);
CREATE INDEX invitations_by_end ON invitations (expires_at);
