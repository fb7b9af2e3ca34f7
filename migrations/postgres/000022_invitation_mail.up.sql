-- SHA-256 of the token of the link that was e-mailed; NULL: none was. The token is made when
-- the e-mail is sent, so that no token is kept while it waits.
ALTER TABLE invitations ADD COLUMN mail_hash BYTEA;
CREATE UNIQUE INDEX invitations_mail_hash ON invitations (mail_hash);
COMMENT ON COLUMN invitations.mail_hash IS 'SHA-256 of the token of the e-mailed link; NULL: none was e-mailed.';
