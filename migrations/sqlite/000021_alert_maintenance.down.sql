DROP TABLE alert_maintenance;
