"""The messaging platform on simulated hardware: real queue, stores and roles, and a judge that knows the seeds."""
