"""The books of the audit: brought up step by step, by tasks that each look after a part of the users."""
