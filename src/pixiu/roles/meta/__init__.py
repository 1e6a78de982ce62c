"""Meta: everything that the processes of a cluster say of themselves, in one place."""
