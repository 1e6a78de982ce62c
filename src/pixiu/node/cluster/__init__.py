"""A described cluster as supervised processes of one machine: ``pixiu cluster``.

``layout`` knows the folder, ``child`` keeps one process alive, ``supervisor`` all of them in order, ``door`` lets other
shells talk to it.
"""
