"""The gRPC door: gomsg's channel for clients, its push, and sessions for admins."""
