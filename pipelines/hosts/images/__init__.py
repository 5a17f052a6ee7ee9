"""Images of hosts that are containers: made from the lock, recorded, found again."""

from pipelines.hosts.images.finding import Image, ensure

__all__ = ["Image", "ensure"]
