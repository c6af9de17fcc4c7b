"""What goes wrong between ranks."""

from __future__ import annotations

from .._core import PeerError as PeerError
