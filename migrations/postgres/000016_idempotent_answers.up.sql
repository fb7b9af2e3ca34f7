-- The first answers to requests with an Idempotency-Key, for 24 hours. No snapshot has them.
CREATE TABLE idempotent_answers (
    id     BYTEA NOT NULL CONSTRAINT idempotent_answers_pkey PRIMARY KEY
           CONSTRAINT idempotent_answers_id CHECK (length(id) = 32),
    body   BYTEA NOT NULL CONSTRAINT idempotent_answers_body CHECK (length(body) = 32),
    answer BYTEA NOT NULL,
    at     BIGINT NOT NULL
);
COMMENT ON TABLE idempotent_answers IS 'First answers to requests with an Idempotency-Key.';
COMMENT ON COLUMN idempotent_answers.id IS 'SHA-256 of the caller, the address, and the key.';
COMMENT ON COLUMN idempotent_answers.body IS 'SHA-256 of the body of the request.';
COMMENT ON COLUMN idempotent_answers.answer IS 'The answer, encrypted with a key that the token of the caller yields.';
COMMENT ON COLUMN idempotent_answers.at IS 'When the request was answered, in seconds since 1970.';
CREATE INDEX idempotent_answers_at ON idempotent_answers (at);
