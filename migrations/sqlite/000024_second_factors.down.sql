ALTER TABLE sessions DROP COLUMN confirmed_at;
DROP TABLE passkey_challenges;
DROP TABLE pending_sign_ins;
DROP TABLE recovery_codes;
DROP TABLE second_factors;
