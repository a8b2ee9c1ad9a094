"""Profiles, comparisons and contests as JSON documents, the way the store keeps them."""

from __future__ import annotations

from typing import Any

from korch_cli.core.machine import VendorNode, VendorProfile
from korch_cli.core.record import Comparison, Contest, Ratio, Samples


def encode_profile(profile: VendorProfile) -> dict[str, Any]:
    """Return a profile as a document."""
    nodes = [[n.name, n.op_type, n.domain, list(n.inputs), list(n.outputs), n.time_us] for n in profile.nodes]
    return {"nodes": nodes, "total_us": profile.total_us}


def decode_profile(document: dict[str, Any]) -> VendorProfile:
    """Return the profile that `encode_profile` made a document of."""
    nodes = (VendorNode(n[0], n[1], n[2], tuple(n[3]), tuple(n[4]), n[5]) for n in document["nodes"])
    return VendorProfile(tuple(nodes), document["total_us"])


def encode_comparison(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as a document."""
    return {
        "samples": [[s.name, list(s.times_us)] for s in comparison.samples],
        "ratios": [[r.value, r.low, r.high, r.pairs] for r in comparison.ratios],
        "threads": comparison.threads,
        "warnings": list(comparison.warnings),
    }


def decode_comparison(document: dict[str, Any]) -> Comparison:
    """Return the comparison that `encode_comparison` made a document of."""
    return Comparison(
        tuple(Samples(name, tuple(times)) for name, times in document["samples"]),
        tuple(Ratio(*ratio) for ratio in document["ratios"]),
        document["threads"],
        tuple(document["warnings"]),
    )


def encode_contest(contest: Contest) -> dict[str, Any]:
    """Return a contest as a document."""
    return {
        "samples": [[s.name, list(s.times_us)] for s in contest.samples],
        "ratios": [[[r.value, r.low, r.high, r.pairs] for r in row] for row in contest.ratios],
    }


def decode_contest(document: dict[str, Any]) -> Contest:
    """Return the contest that `encode_contest` made a document of."""
    return Contest(
        tuple(Samples(name, tuple(times)) for name, times in document["samples"]),
        tuple(tuple(Ratio(*ratio) for ratio in row) for row in document["ratios"]),
    )
