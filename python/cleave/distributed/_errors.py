"""What goes wrong between ranks."""

from __future__ import annotations


class PeerError(RuntimeError):
    """Ranks of a group disagree about a call; or one has died, or has not come, in a collective by gloo."""
