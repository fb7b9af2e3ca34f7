-- Second factors of people who sign in with a password.
--
-- A sign-in whose password was right but whose second factor is missing is in a table of its own,
-- so that a release that does not know it never takes it for a session.

CREATE TABLE second_factors (
    id         TEXT NOT NULL CONSTRAINT second_factors_pkey PRIMARY KEY
               CONSTRAINT second_factors_id_uuid CHECK (length(id) = 36),
    user_id    TEXT NOT NULL CONSTRAINT second_factors_user REFERENCES users (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL CONSTRAINT second_factors_kind CHECK (kind IN ('totp', 'passkey')),
    name       TEXT NOT NULL CONSTRAINT second_factors_name CHECK (name <> ''),
    -- ID of the credential of a passkey; NULL: an authenticator app.
    credential BLOB CONSTRAINT second_factors_credential_key UNIQUE,
    -- The secret of an authenticator app, encrypted if HEADGATE_SECRETS_KEY is set; the public key of a passkey.
    data       BLOB NOT NULL,
    -- The time step of the last used code, which makes a code valid once.
    step       BIGINT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    used_at    TIMESTAMP,
    CONSTRAINT second_factors_form CHECK ((kind = 'passkey') = (credential IS NOT NULL))
);
CREATE INDEX second_factors_of_user ON second_factors (user_id, id);

-- Unused recovery codes: a row is deleted with its use.
CREATE TABLE recovery_codes (
    user_id TEXT NOT NULL CONSTRAINT recovery_codes_user REFERENCES users (id) ON DELETE CASCADE,
    -- SHA-256 of the code, which is not kept.
    hash    BLOB NOT NULL CONSTRAINT recovery_codes_hash CHECK (length(hash) = 32),
    CONSTRAINT recovery_codes_pkey PRIMARY KEY (user_id, hash)
);

-- Sign-ins whose password was right and whose second factor is missing. They give no rights.
CREATE TABLE pending_sign_ins (
    id         TEXT NOT NULL CONSTRAINT pending_sign_ins_pkey PRIMARY KEY
               CONSTRAINT pending_sign_ins_id_uuid CHECK (length(id) = 36),
    -- SHA-256 of the cookie's value, which is not kept.
    hash       BLOB NOT NULL CONSTRAINT pending_sign_ins_hash_key UNIQUE
               CONSTRAINT pending_sign_ins_hash CHECK (length(hash) = 32),
    user_id    TEXT NOT NULL CONSTRAINT pending_sign_ins_user REFERENCES users (id) ON DELETE CASCADE,
    created_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
CREATE INDEX pending_sign_ins_of_user ON pending_sign_ins (user_id, id);
CREATE INDEX pending_sign_ins_by_end ON pending_sign_ins (expires_at);

-- What a browser must answer with a passkey, once: the row goes with the answer.
CREATE TABLE passkey_challenges (
    -- ID of the session or of the pending sign-in.
    id         TEXT NOT NULL CONSTRAINT passkey_challenges_pkey PRIMARY KEY,
    data       BLOB NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
CREATE INDEX passkey_challenges_by_end ON passkey_challenges (expires_at);

-- When the person last typed the password, and used the second factor if there is one; NULL: never, or by OpenID Connect.
ALTER TABLE sessions ADD COLUMN confirmed_at TIMESTAMP;
