-- The first answers to requests with an Idempotency-Key, for 24 hours. No snapshot has them.
CREATE TABLE idempotent_answers (
    -- SHA-256 of the caller, the address, and the key.
    id     BLOB NOT NULL CONSTRAINT idempotent_answers_pkey PRIMARY KEY
           CONSTRAINT idempotent_answers_id CHECK (length(id) = 32),
    -- SHA-256 of the body of the request.
    body   BLOB NOT NULL CONSTRAINT idempotent_answers_body CHECK (length(body) = 32),
    -- Encrypted with a key that the token of the caller yields.
    answer BLOB NOT NULL,
    -- When the request was answered, in seconds since 1970.
    at     BIGINT NOT NULL
);
CREATE INDEX idempotent_answers_at ON idempotent_answers (at);
