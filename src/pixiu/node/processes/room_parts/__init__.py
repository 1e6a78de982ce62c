"""The roles of live rooms, each in a module of its own: a process loads the one that it runs."""
