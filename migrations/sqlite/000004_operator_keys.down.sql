DROP TABLE operator_keys;
