# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The commands: each gets the parsed arguments and returns an exit code.

Commands that need a running lab call methods of `Lab`, the others functions of `lifecycle`.
"""

import argparse
import os
import subprocess
from collections.abc import Callable

from labkit import inventory as inventory_module
from labkit.api import Api
from labkit.cli import logs
from labkit.cli import soak as soak_module
from labkit.cluster import lifecycle
from labkit.cluster import setup as setup_module
from labkit.host.places import places
from labkit.images import buildah
from labkit.images.programs import programs
from labkit.lab import Lab
from labkit.net.namespaces import inside

Action = Callable[[argparse.Namespace], int]
PARTS = tuple(setup_module.PARTS)


def on_lab(method: Callable[..., object], *names: str) -> Action:
    """Return a command that calls a method of the running lab with the named arguments.

    It prints what the method returns, unless that is None.
    """

    def act(args: argparse.Namespace) -> int:
        result = method(Lab.load(), *(getattr(args, name) for name in names))
        if result is not None:
            print(result)
        return 0

    return act


def setup(args: argparse.Namespace) -> int:
    """Run `lab setup`."""
    setup_module.setup(places(), args.part)
    return 0


def build_image(args: argparse.Namespace) -> int:
    """Run `lab image build`."""
    built = buildah.build(
        places(),
        tag=args.tag,
        file=args.file,
        context=args.context,
        arguments=args.build_arg,
        output=args.output,
    )
    print(f"{built.tag}: {built.id[:12]}, {built.size}")
    return 0


def up(args: argparse.Namespace) -> int:
    """Run `lab up`."""
    lifecycle.up(places(), nodes=args.nodes, placements=args.place, variants=args.variant)
    return 0


def down(_args: argparse.Namespace) -> int:
    """Run `lab down`."""
    lifecycle.take_down(places())
    return 0


def status(_args: argparse.Namespace) -> int:
    """Run `lab status`."""
    return 0 if lifecycle.status(places()) else 1


def kubeconfig(args: argparse.Namespace) -> int:
    """Run `lab kubeconfig`."""
    path = Lab.load().kubeconfig
    print(path.read_text() if args.raw else path)
    return 0


def inventory(_args: argparse.Namespace) -> int:
    """Run `lab inventory`."""
    lab = Lab.load()
    print(inventory_module.inventory(lab.at, lab.topology))
    return 0


def execute(args: argparse.Namespace) -> int:
    """Run `lab exec`, and `lab client`, whose host is always the client."""
    host = Lab.load().topology.host(args.host)
    return subprocess.run(inside(host.netns, _words(args.argv)), check=False).returncode


def kubectl(args: argparse.Namespace) -> int:
    """Run `lab kubectl`."""
    lab = Lab.load()
    env = os.environ | {"KUBECONFIG": str(lab.kubeconfig)}
    argv = [str(programs(lab.at).kubernetes), "kubectl", *_words(args.argv)]
    return subprocess.run(argv, env=env, check=False).returncode


def _words(argv: list[str]) -> list[str]:
    return argv[1:] if argv[:1] == ["--"] else argv


def connect(args: argparse.Namespace) -> int:
    """Run `lab connect`."""
    cable = Lab.load().connect(args.node, args.lan)
    print(f"{args.node} has {cable.name} in {cable.lan} with {cable.v4} and {cable.v6}")
    return 0


def load(args: argparse.Namespace) -> int:
    """Run `lab load`."""
    lab = Lab.load()
    lab.load_image(args.archive, *args.node)
    print(f"{args.archive.name} is on {', '.join(args.node or lab.nodes)}")
    return 0


def api(args: argparse.Namespace) -> int:
    """Run `lab api`."""
    lab = Lab.load()
    if args.what in ("stop", "restart"):
        lab.stop_api()
    if args.what in ("start", "restart"):
        lab.start_api()
    return 0


def routing(args: argparse.Namespace) -> int:
    """Run `lab routing`."""
    methods = {"start": Lab.start_routing, "stop": Lab.stop_routing, "show": Lab.show_routing}
    return on_lab(methods[args.what])(args)


def soak(args: argparse.Namespace) -> int:
    """Run `lab soak`."""
    return 0 if soak_module.soak(places(), times=args.times, nodes=args.nodes) else 1


def show_logs(args: argparse.Namespace) -> int:
    """Run `lab logs`."""
    return logs.show(places(), args.name, follow=args.follow, lines=args.lines)


def stand_in(_args: argparse.Namespace) -> int:
    """Run the daemon that stands for programs of other nodes."""
    from labkit.cluster import state  # noqa: PLC0415 - no other command needs it
    from labkit.net import stand_ins  # noqa: PLC0415 - no other command needs it

    at = places()
    topology = state.load_topology(at)
    if topology:
        stand_ins.run(topology, Api(at.run / "pki", topology.api_v4))
    return 1


def keep_links(_args: argparse.Namespace) -> int:
    """Run the daemon that restores deleted links."""
    from labkit.cluster import keeper, state  # noqa: PLC0415 - no other command needs it

    topology = state.load_topology(places())
    if topology:
        keeper.run(topology)
    return 1
