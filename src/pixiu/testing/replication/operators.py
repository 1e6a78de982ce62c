"""The operator of a replicated journal without a registry: decides who leads, and looks after the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.replication import FollowTold, PromoteAsked, State

if TYPE_CHECKING:
    from pixiu.testing.replication.process import SimulatedProcess
    from pixiu.testing.replication.world import World

__all__ = ["Operator"]

LOOK_EVERY_MS = 150


class Operator:
    """Careful where it matters: stops the old leader first, and promotes a follower that is in sync."""

    def __init__(self, world: World) -> None:
        self._world = world
        first = next(iter(world.nodes.values()))
        self.leader_named = first.name
        self._promoting: str | None = None
        self._stopped = first

    def fail_over(self, for_ms: int) -> None:
        """Stop the leader and promote a follower that both it and the leader call in sync.

        A hasty operator tries one first that is not in sync, which must refuse.
        """
        leader = self._world.nodes[self.leader_named]
        if self._promoting is not None or not leader.is_up or leader.replica.leadership is None:
            return
        members = leader.replica.leadership.control.in_sync - {leader.name}
        others = [
            node for node in self._world.nodes.values() if node is not leader and node.is_up and not node.is_frozen
        ]
        fit = [node for node in others if node.name in members and node.replica.state is State.IN_SYNC]
        unfit = [node for node in others if node.name not in members and node.replica.state is State.FOLLOWING]
        if not fit and not unfit:
            return
        self._world.nemesis.crash(leader, for_ms)
        chosen = self._world.rng.choice(fit) if fit else leader
        if unfit:
            unfit[0].feed(PromoteAsked())
            if unfit[0].replica.has_claim:
                chosen = unfit[0]
        if chosen is not leader:
            self._stopped, self._promoting, self.leader_named = leader, chosen.name, chosen.name
        self._world.note("operator", "promotes", chosen.name)

    def operate(self) -> None:
        """Look after the cluster: finish a promotion, and point everyone to the leader."""
        if self._promoting is not None:
            node = self._world.nodes[self._promoting]
            if node.is_up and node.replica.state is State.LEADING:
                self._promoting = None
            elif node.is_up and not node.is_frozen:
                node.refusal = ""
                node.feed(PromoteAsked())
                if "not in sync" in node.refusal:
                    self._go_back(self._stopped)
        else:
            for node in self._world.nodes.values():
                if not node.is_up or node.is_frozen or node.name == self.leader_named:
                    continue
                if node.replica.state is State.JOINING or node.replica.leader != self.leader_named:
                    node.feed(FollowTold(self.leader_named))
        self._world.simulation.after(LOOK_EVERY_MS, self.operate)

    def _go_back(self, leader: SimulatedProcess) -> None:
        """The chosen one crashed before it had written down that it is in sync: the old leader must lead again."""
        self._world.note("operator", "goes back to", leader.name)
        self._promoting, self.leader_named = None, leader.name
        if leader.is_up:
            leader.crash()
            leader.start()
