"""How the processes of a cluster talk: messages, datagrams of many messages, and seals that only the cluster can make.

Sans-IO; ``pixiu.links`` moves it, ``docs/cluster.md`` has every byte.
"""
