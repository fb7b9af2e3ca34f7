DROP INDEX blocks_in_force;
DROP INDEX list_entries_in_force;
DROP INDEX overrides_in_force;
DROP INDEX blocks_of_policy;
DROP INDEX overrides_of_policy;
