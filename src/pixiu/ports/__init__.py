"""Interfaces to the world and to stores: small Protocol classes, no code."""
