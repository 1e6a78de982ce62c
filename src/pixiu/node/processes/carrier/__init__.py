"""``pixiu role carrier``: a partition of the users, as a process with replicas."""
