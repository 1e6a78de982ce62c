"""``pixiu role gateway``: clients' connections in a cluster, and what admins ask there."""
