"""HTTP: connections, access checks, routes, and the answers to requests."""
