-- The attempts to send a message, which the delivery log shows; and messages that are no
-- alerts: links of invitations, which have no channel.
ALTER TABLE alert_deliveries ALTER COLUMN channel_id DROP NOT NULL;
ALTER TABLE alert_deliveries ADD COLUMN invitation_id TEXT COLLATE "C"
    CONSTRAINT alert_deliveries_invitation REFERENCES invitations (id) ON DELETE CASCADE;
ALTER TABLE alert_deliveries ADD CONSTRAINT alert_deliveries_whither CHECK ((channel_id IS NULL) <> (invitation_id IS NULL));
CREATE INDEX alert_deliveries_of_invitation ON alert_deliveries (invitation_id);
COMMENT ON COLUMN alert_deliveries.channel_id IS 'Where an alert or a test goes; NULL: to the address of the invitation.';
CREATE TABLE alert_attempts (
    delivery_id TEXT COLLATE "C" NOT NULL CONSTRAINT alert_attempts_delivery REFERENCES alert_deliveries (id) ON DELETE CASCADE,
    at          TIMESTAMPTZ NOT NULL,
    answer      TEXT NOT NULL,
    CONSTRAINT alert_attempts_pkey PRIMARY KEY (delivery_id, at)
);
COMMENT ON TABLE alert_attempts IS 'The attempts to send a message.';
COMMENT ON COLUMN alert_attempts.at IS 'When the attempt ended.';
