DROP TABLE durable_states;
