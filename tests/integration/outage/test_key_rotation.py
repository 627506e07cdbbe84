# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agents' key is rotated while they run; every agent answers every other one all the time."""

from __future__ import annotations

import base64
import itertools
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from purelb.core.api import codec
from purelb.core.holding.messages import build_message, read_response
from purelb.core.holding.outage import (
    OUTAGE,
    OutageQuestion,
    PeerAnswer,
    outage_question_body,
    read_outage_answer,
)
from purelb.core.holding.peer_keys import key_id

OBJECT = "/api/v1/namespaces/purelb-system/secrets/purelb-peers"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"

pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]


@pytest.fixture
def keys(cluster):
    """Returns every key that the Secret has had since, by its id."""
    known = {}

    def look():
        for text in cluster.api.get(OBJECT)["data"].values():
            key = base64.b64decode(text)
            known[key_id(key)] = key
        return known

    look()
    return look


def published(cluster):
    leases = map(codec.lease_of, cluster.api.items(LEASES))
    return {lease.node: lease.peer_keys for lease in leases if lease is not None}


def ask(cluster, asker, peer, address, key):
    """Ask a peer in the name of another node; returns its answer."""
    nonce = secrets.token_hex(16)
    # So long ago that each peer has renewed since.
    body = outage_question_body(OutageQuestion(asker, failing_for=60.0, duration=10.0))
    message = build_message(key, peer=peer, kind=OUTAGE, nonce=nonce, body=body).decode()
    options = ["-X", "POST", "-H", "Content-Type: application/json", "--data-raw", message]
    host = f"[{address}]" if ":" in address else address
    curl = ["curl", "-sS", "--max-time", "5", *options, f"http://{host}:7472/peer"]
    done = cluster.run_in("client", curl, check=False)
    found = read_response(key, done.stdout.encode(), peer=peer, nonce=nonce)
    said = read_outage_answer(found) if found else None
    return said.answer if said else PeerAnswer.SILENT


def test_a_rotation_leaves_no_question_unanswered(cluster, playbook, keys, figure):
    (old,) = keys()
    assert set(published(cluster).values()) == {(old,)}
    unanswered, seen, count = [], set(), 0
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(playbook, "purelb.purelb.rotate_peer_key", check=False)
        while not run.done():
            signing = {node: ids[0] for node, ids in published(cluster).items()}
            known = keys()
            seen |= set(published(cluster).values())
            for asker, peer in itertools.permutations(signing, 2):
                host = cluster.nodes[peer]
                for address in (host.v4, host.v6):
                    answer = ask(cluster, asker, peer, address, known[signing[asker]])
                    count += 1
                    if answer is not PeerAnswer.CAN:
                        unanswered.append((asker, peer, signing[asker], answer))
    done = run.result()
    assert done.returncode == 0, done.stdout
    assert "changed=1" in done.stdout
    (new,) = {key_id(base64.b64decode(t)) for t in cluster.api.get(OBJECT)["data"].values()}
    figure(f"{count} questions, {len(unanswered)} unanswered")
    assert unanswered == []
    assert set(published(cluster).values()) == {(new,)} != {(old,)}
    # Both keys were accepted in between, in both orders.
    assert {(old, new), (new, old)} <= seen
    assert not any(key.decode() in done.stdout + done.stderr for key in keys().values())
