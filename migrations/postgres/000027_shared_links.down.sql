DROP TABLE shared_links;
