"""The HTTP door: every action, push, administration and health, as an ASGI application."""
