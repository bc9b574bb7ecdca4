"""Who calls a master, and what that allows: tokens, roles, projects, and the needs of each call.

Imports lead from here to the store, never to the services.
"""
