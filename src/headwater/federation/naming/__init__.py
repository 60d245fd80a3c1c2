"""The naming service on the wire: servers of domains, lookups, registrations, and sources in other federations."""
