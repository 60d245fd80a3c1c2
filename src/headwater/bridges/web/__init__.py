"""Browsers, phones and `curl` at a node: WebSocket, server-sent events, and POST. Filters run at the sources."""

from headwater.extras import require

require("web", "headwater.bridges.web")

from headwater.bridges.web.bridge import WebBridge, WebLimits  # noqa: E402

__all__ = ["WebBridge", "WebLimits"]
