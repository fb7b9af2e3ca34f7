-- Plans and versions refer to one another; without the pointers, versions go first.
UPDATE plans SET published = NULL;
DROP TABLE plan_limits;
DROP TABLE cells;
DROP TABLE plan_versions;
DROP TABLE plans;
