"""Kinds of things a host can be wanted to have; a module each, with ``check`` and ``apply``.

``check(spec)`` says what is there: ``{"ok": bool, "found": str}``. ``apply(spec)`` brings about
what is wanted; it may be repeated, and what it leaves half-done never passes the check.
"""
