"""Starts elbowroom when its person logs in: a systemd user unit, a launchd agent or a Windows task."""
