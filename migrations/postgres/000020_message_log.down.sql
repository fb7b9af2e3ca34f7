DROP TABLE alert_attempts;
DELETE FROM alert_deliveries WHERE channel_id IS NULL;
ALTER TABLE alert_deliveries DROP COLUMN invitation_id;
ALTER TABLE alert_deliveries ALTER COLUMN channel_id SET NOT NULL;
COMMENT ON COLUMN alert_deliveries.channel_id IS NULL;
