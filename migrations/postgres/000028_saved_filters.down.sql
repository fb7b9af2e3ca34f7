DROP TABLE saved_filters;
