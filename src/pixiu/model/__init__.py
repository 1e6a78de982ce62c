"""Nouns: frozen dataclasses and pure functions. Imports nothing of ours."""
