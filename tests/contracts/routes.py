"""What every ``Routes`` must do."""

from abc import ABC, abstractmethod

from pixiu.ports.routes import Route, Routes


class RoutesContract(ABC):
    """Who listens where; old news loses."""

    @abstractmethod
    def make_routes(self) -> Routes:
        """Routes without anyone."""

    def test_everyone_in_a_room_by_user_and_session(self) -> None:
        routes = self.make_routes()
        made = [Route(5, 20, "g1", 1), Route(2, 30, "g2", 1), Route(5, 10, "g1", 1)]
        for route in made:
            assert routes.enter(1, route)
        assert routes.of(1) == [made[1], made[2], made[0]]
        assert routes.count(1) == 3
        assert (routes.of(2), routes.count(2)) == ([], 0)

    def test_entering_again_replaces_the_route(self) -> None:
        routes = self.make_routes()
        assert routes.enter(1, Route(5, 20, "g1", 1))
        assert routes.enter(1, Route(5, 20, "g1", 1))
        assert routes.enter(1, Route(5, 20, "g2", 3))
        assert not routes.enter(1, Route(5, 20, "g1", 2))
        assert routes.of(1) == [Route(5, 20, "g2", 3)]

    def test_leaving(self) -> None:
        routes = self.make_routes()
        routes.enter(1, Route(5, 20, "g1", 1))
        routes.enter(1, Route(6, 21, "g1", 1))
        routes.enter(2, Route(5, 20, "g1", 1))
        assert routes.leave(1, 20, 2)
        assert routes.of(1) == [Route(6, 21, "g1", 1)]
        assert routes.count(2) == 1

    def test_an_old_leave_loses_against_a_newer_enter(self) -> None:
        routes = self.make_routes()
        routes.enter(1, Route(5, 20, "g1", 3))
        assert not routes.leave(1, 20, 2)
        assert routes.count(1) == 1

    def test_an_old_enter_loses_against_a_newer_leave(self) -> None:
        routes = self.make_routes()
        assert routes.leave(1, 20, 4)
        assert not routes.enter(1, Route(5, 20, "g1", 3))
        assert routes.count(1) == 0
        assert routes.leave(1, 20, 2)
        assert not routes.enter(1, Route(5, 20, "g1", 3))
        assert routes.enter(2, Route(5, 20, "g1", 3)), "another room"
        assert routes.enter(1, Route(5, 20, "g1", 5))
        assert routes.count(1) == 1

    def test_a_gateway_takes_its_routes_along(self) -> None:
        routes = self.make_routes()
        for room in (1, 2):
            routes.enter(room, Route(5, 20, "g1", 1))
            routes.enter(room, Route(6, 21, "g2", 1))
        routes.enter(3, Route(5, 20, "g1", 1))
        assert routes.drop_gateway("g1") == 3
        assert routes.drop_gateway("g1") == 0
        assert [routes.count(room) for room in (1, 2, 3)] == [1, 1, 0]
