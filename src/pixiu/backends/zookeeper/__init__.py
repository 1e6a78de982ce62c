"""What several machines agree on, in ZooKeeper."""
