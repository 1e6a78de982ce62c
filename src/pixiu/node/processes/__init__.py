"""What ``pixiu role NAME`` starts: one process of a cluster, and what all of them share."""
