"""Versions of installed distributions, each looked up once: a look-up reads files."""

from __future__ import annotations

import functools
import importlib.metadata

version = functools.cache(importlib.metadata.version)
