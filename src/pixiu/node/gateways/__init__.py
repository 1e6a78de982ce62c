"""The gateway processes of one node (``pixiu serve --gateways N``): the node's end, and theirs."""
