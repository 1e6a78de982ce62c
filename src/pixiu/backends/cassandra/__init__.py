"""``Timelines`` on Cassandra or ScyllaDB, in the tables that seed 004 publishes."""
