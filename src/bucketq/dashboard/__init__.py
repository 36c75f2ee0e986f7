"""The web page: a process of its own, which uses queues as any other client does.

``web_server`` runs it, ``web_app`` answers its requests, and ``static/`` is what a browser loads.
It needs the extra ``dashboard``.
"""
