"""Whole clusters in virtual time: rooms, carriers with replicas, people who write, and their judge."""
