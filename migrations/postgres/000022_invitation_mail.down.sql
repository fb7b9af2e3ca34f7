DROP INDEX invitations_mail_hash;
ALTER TABLE invitations DROP COLUMN mail_hash;
