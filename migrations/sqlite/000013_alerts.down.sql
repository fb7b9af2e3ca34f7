DROP TABLE alert_deliveries;
DROP TABLE alert_incidents;
DROP TABLE alert_channels;
DROP TABLE alert_rules;
