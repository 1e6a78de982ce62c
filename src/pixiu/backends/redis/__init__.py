"""Messaging stores on Redis or Valkey: one server, a Sentinel group, or a Cluster."""
