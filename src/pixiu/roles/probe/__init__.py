"""The probe: pseudo-users over every path, and what is broken."""
