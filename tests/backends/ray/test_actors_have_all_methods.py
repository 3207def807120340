"""Whatever the engine may call on a host or the server, their actors have."""

from __future__ import annotations

from inspect import isfunction

import pytest

from rayfl.backends.ray.host_actor import HostActor
from rayfl.backends.ray.server_actor import ServerActor
from rayfl.engine.host import Host
from rayfl.engine.server import Server


@pytest.mark.parametrize(("actor", "plain"), [(HostActor, Host), (ServerActor, Server)])
def test_an_actor_has_every_method_of_what_it_holds(actor: type, plain: type) -> None:
    own = {name for name, value in vars(actor).items() if isfunction(value)}
    assert {name for name, value in vars(plain).items() if isfunction(value) and not name.startswith("_")} <= own
