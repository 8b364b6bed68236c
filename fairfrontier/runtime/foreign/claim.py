"""What the parts of a file say of each other, and of it."""

from __future__ import annotations


def require(holds: bool, what: str) -> None:
    """Raise ValueError unless something holds of what a file says."""
    if not holds:
        raise ValueError(f"its {what} cannot be right")
