# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest

from purelb.core.api.custom_resources import node_config_of
from purelb.core.model import Link
from purelb.core.node.configuration import NodeConfig, SelectorState, choose
from purelb.core.node.interfaces import selected_links
from purelb.core.settings import AddressConfig, AnnounceConfig
from tests.support.core.snapshots import ETH0

LABELS = {"zone": "a", "disk": "ssd"}
ETH1, BOND = Link(3, "eth1"), Link(4, "bond0.100")
DOWN = Link(5, "eth9", is_up=False)


def config(name="default", *, labels=None, expressions=None, **local):
    selector = {"matchLabels": labels or {}, "matchExpressions": expressions or []}
    spec = {"nodeSelector": selector, "local": local}
    return node_config_of({"metadata": {"name": name, "namespace": "x"}, "spec": spec})


def expression(operator, *values, key="zone"):
    return [{"key": key, "operator": operator, "values": list(values)}]


class TestSelection:
    def test_without_objects_the_defaults_hold(self):
        choice = choose([], LABELS)
        assert (choice.state, choice.config) == (SelectorState.DEFAULT, NodeConfig())

    @pytest.mark.parametrize(
        ("expressions", "selects"),
        [
            (expression("In", "a", "b"), True),
            (expression("In", "b"), False),
            (expression("NotIn", "b"), True),
            (expression("NotIn", "a"), False),
            (expression("NotIn", "a", key="absent"), True),
            (expression("Exists"), True),
            (expression("Exists", key="absent"), False),
            (expression("DoesNotExist", key="absent"), True),
            (expression("DoesNotExist"), False),
        ],
        ids=str,
    )
    def test_expressions_select_as_in_kubernetes(self, expressions, selects):
        choice = choose([config(expressions=expressions)], LABELS)
        expected = SelectorState.CONFIGURED if selects else SelectorState.DESELECTED
        assert choice.state is expected

    def test_a_node_that_no_object_selects_has_no_configuration(self):
        choice = choose([config(labels={"zone": "b"})], LABELS)
        assert (choice.state, choice.config) == (SelectorState.DESELECTED, None)

    @pytest.mark.parametrize("spec", [{}, {"local": None}, None], ids=str)
    def test_an_object_without_local_is_skipped(self, spec):
        bare = node_config_of({"metadata": {"name": "bare", "namespace": "x"}, "spec": spec})
        choice = choose([bare], LABELS)
        assert (choice.state, choice.config) == (SelectorState.DEFAULT, NodeConfig())
        next_to_others = choose([bare, config("catch-all")], LABELS)
        assert (next_to_others.state, next_to_others.config.name) == (
            SelectorState.CONFIGURED,
            "catch-all",
        )

    def test_a_specific_object_beats_a_catch_all_and_ties_go_by_name(self):
        objects = [
            config("a"),
            config("c", labels={"zone": "a"}),
            config("b", labels={"disk": "ssd"}),
            config("0", labels={"zone": "b"}),
        ]
        chosen = {choose(order, LABELS).config.name for order in itertools.permutations(objects)}
        assert chosen == {"b"}


class TestSettings:
    def test_both_spellings_of_the_announcement_times_mean_the_same(self):
        numbers = config(garpConfig={"count": 5, "intervalMs": 250, "delayMs": 0})
        texts = config(garpConfig={"count": 5, "interval": "250ms", "initialDelay": "0ms"})
        assert numbers.announce == texts.announce == AnnounceConfig(True, 5, 0.25, 0.0)

    def test_missing_settings_have_defaults(self):
        assert config().announce == AnnounceConfig()
        assert config().addresses == AddressConfig()

    @pytest.mark.parametrize("preferred", [0, 30])
    def test_a_preferred_lifetime_is_read(self, preferred):
        lifetimes = {"validLifetime": 60, "preferredLifetime": preferred}
        read = config(addressConfig={"localInterface": lifetimes})
        assert read.addresses == AddressConfig(60, preferred, no_prefix_route=True)

    @pytest.mark.parametrize(
        ("local", "problem"),
        [
            (
                {"localInterface": "eth("},
                "spec.local.localInterface: 'eth(' is not a regular expression",
            ),
            ({"garpConfig": {"interval": "soon"}}, "spec.local.garpConfig.interval='soon'"),
        ],
    )
    def test_invalid_setting_makes_the_object_invalid_with_a_reason(self, local, problem):
        choice = choose([config(**local)], LABELS)
        assert choice.state is SelectorState.INVALID
        assert choice.config.problem.startswith(problem)


class TestInterfaces:
    @pytest.mark.parametrize(
        ("local", "names"),
        [
            ({}, ["eth0"]),
            ({"localInterface": "none"}, []),
            ({"localInterface": "^eth"}, ["eth0", "eth1"]),
            ({"localInterface": "bond"}, ["bond0.100"]),
            ({"interfaces": ["eth1", "missing"]}, ["eth0", "eth1"]),
            ({"localInterface": "none", "interfaces": ["bond0.100"]}, ["bond0.100"]),
            ({"interfaces": ["eth0"]}, ["eth0"]),
        ],
        ids=str,
    )
    def test_are_those_that_the_configuration_names(self, local, names):
        links = selected_links([ETH0, ETH1, BOND, DOWN], config(**local))
        assert [link.name for link in links] == names
